"""How the peers are installed, run and compared. The command is bench/peers/run."""
