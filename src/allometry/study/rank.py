"""Alias of `allometry.study.execute.torchrun_worker`: `torchrun ... -m allometry.study.rank`."""

from allometry.study.execute.torchrun_worker import main

if __name__ == "__main__":
    main()
