"""The type checker that tests run the package under: an int is a float, as for every other type checker."""

from beartype import BeartypeConf, beartype

check = beartype(conf=BeartypeConf(is_pep484_tower=True))
