# The base is named by an exact tag. Pin its digest when you build; none is written here, because
# nobody could tell when it has grown old:
#   docker build --build-arg BASE=python:3.13.9-slim-trixie@sha256:… -t quota-translator:0.1.0 .
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
RUN rm -rf /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/ensurepip \
      /usr/local/bin/pip*
COPY --from=build /opt/quota-translator /opt/quota-translator
# The file system is only read, and what is logged is seen at once.
ENV PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 65532:65532
ENTRYPOINT ["/opt/quota-translator/bin/python", "-m", "quota_translator"]
CMD ["run"]
