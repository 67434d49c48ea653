from e2e.controlplane import build

build.ensure(lambda line: print(line, flush=True))
