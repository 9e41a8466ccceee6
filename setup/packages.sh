# Debian packages for the test cluster: sourced by setup/demo and setup/test. Installs what is missing, once.

# Programs and the package that brings each.
OAR_PACKAGES='python3:/usr/bin/python3 python3-venv:/usr/lib/python3*/ensurepip/__init__.py
openssh-server:/usr/sbin/sshd openssh-client:/usr/bin/ssh-keygen sudo:/usr/bin/sudo iproute2:/usr/sbin/ip:/sbin/ip:/usr/bin/ip:/bin/ip
iputils-ping:/usr/bin/ping:/bin/ping procps:/usr/bin/ps:/bin/ps util-linux:/usr/bin/setpriv postgresql:/usr/lib/postgresql/*/bin/initdb'

say() {
    printf '%s\n' "$*" >&2
}

# missing_packages: names of the packages none of whose files is there.
missing_packages() {
    for entry in $OAR_PACKAGES; do
        package=${entry%%:*}
        found=
        for pattern in $(printf %s "${entry#*:}" | tr : ' '); do
            for file in $pattern; do
                [ -e "$file" ] && found=yes
            done
        done
        [ -n "$found" ] || printf '%s ' "$package"
    done
}

# install_packages [PACKAGE:FILE...]: those and what is above; as root on Debian, install them; elsewhere say in one line what is missing.
install_packages() {
    OAR_PACKAGES="$OAR_PACKAGES $*"
    missing=$(missing_packages)
    [ -z "$missing" ] && return 0
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        say "Missing: install the packages $missing(as root: apt-get install $missing)."
        return 1
    fi
    say "Installing Debian packages: $missing"
    log=$(mktemp)
    if ! (alone && install_missing) >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        say "The packages could not be installed."
        return 1
    fi
    rm -f "$log"
}

# alone: wait until no other demonstration or suite installs packages; the lock ends with the subshell that took it.
alone() {
    exec 9>/run/oar-packages.lock
    flock 9
}

# install_missing: what is missing still, after somebody else may have installed it.
install_missing() {
    missing=$(missing_packages)
    [ -z "$missing" ] && return 0
    apt_install "$missing" 9>&- # no daemon that a package starts may keep the lock
}

apt_install() {
    # Debian's postgresql makes and starts a database cluster of its own unless it is told not to; ours is private.
    no_cluster=/etc/postgresql-common/createcluster.d/oar-no-main-cluster.conf
    mkdir -p "${no_cluster%/*}"
    echo 'create_main_cluster = false' >"$no_cluster"
    status=0
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -qq </dev/null &&
        apt-get install -y -qq -o DPkg::Lock::Timeout=600 --no-install-recommends ${CI:+-o Dpkg::Options::=--force-unsafe-io} $1 </dev/null || status=$?
    rm -f "$no_cluster"
    return $status
}
