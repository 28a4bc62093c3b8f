"""What is done with finished runs: plug-ins of `sebra`, which never imports them."""
