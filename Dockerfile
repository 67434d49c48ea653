# The base is named by an exact tag; pin its digest when you build:
#   docker build --build-arg BASE=python:3.13.9-slim-trixie@sha256:… .
ARG BASE=python:3.13.9-slim-trixie

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/run.txt requirements/run.txt
RUN python -m venv --copies /opt/quota-translator \
 && /opt/quota-translator/bin/python -m pip install --no-cache-dir --only-binary :all: \
      --require-hashes --requirement requirements/run.txt
COPY quota_translator quota_translator
RUN site=$(/opt/quota-translator/bin/python -c 'import site; print(site.getsitepackages()[0])') \
 && cp -r quota_translator "$site/" \
 && /opt/quota-translator/bin/python -m compileall -q "$site/quota_translator" \
 && rm -rf "$site"/pip "$site"/pip-* "$site"/setuptools* /opt/quota-translator/bin/pip*

FROM ${BASE}
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/bin/pip*
COPY --from=build /opt/quota-translator /opt/quota-translator
USER 65532:65532
ENTRYPOINT ["/opt/quota-translator/bin/python", "-m", "quota_translator"]
CMD ["run"]
