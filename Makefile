# Everything is done by programs of setup/; these are their short names.
# make check | demo | debian-package | server-install | user-install | node-install | api-install | doc-install | uninstall

PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
SBINDIR = $(PREFIX)/sbin
MANDIR = $(PREFIX)/share/man
DOCDIR = $(PREFIX)/share/doc/oar
OARDIR = $(PREFIX)/lib/oar
OARCONFDIR = /etc/oar
OARHOMEDIR = /var/lib/oar
OARUSER = oar
DESTDIR =
PYTHON = /usr/bin/python3

INSTALL = setup/install --prefix "$(PREFIX)" --bindir "$(BINDIR)" --sbindir "$(SBINDIR)" --mandir "$(MANDIR)" \
	--docdir "$(DOCDIR)" --oardir "$(OARDIR)" --confdir "$(OARCONFDIR)" --homedir "$(OARHOMEDIR)" --user "$(OARUSER)" \
	--destdir "$(DESTDIR)" --python "$(PYTHON)"

# Options of setup/package, as --output DIR.
PACKAGE =

.PHONY: help check demo debian-package server-install user-install node-install api-install doc-install uninstall

help:
	@sed -n 2p Makefile

check:
	setup/test

demo:
	setup/demo

debian-package:
	setup/package $(PACKAGE)

server-install user-install node-install api-install doc-install:
	$(INSTALL) $(@:-install=)

uninstall:
	$(INSTALL) --remove
