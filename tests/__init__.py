"""How types and shapes are checked under test: an int may stand for a float, as in any call."""

from beartype import BeartypeConf, beartype

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))
