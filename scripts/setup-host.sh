#!/bin/sh
# Makes a Debian 12 host able to run `make demo` (and with --dev `make check`, with
# --vm `make test-vm`): installs what is missing, starts Docker if none answers. Needs root. Changes
# nothing that is there, starts no other service, and prints one line when all
# is well. Safe to run again at any time.
#
#   scripts/setup-host.sh [--dev] [--vm]
set -eu

min_go=1.26
docker_log=/var/log/trimtab-dockerd.log
docker_wait_s=60

say() { echo "setup: $*"; }
die() {
	echo "setup: $*" >&2
	exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

dev=false
vm=false
for arg in "$@"; do
	case $arg in
	--dev) dev=true ;;
	--vm) vm=true ;;
	*) die "unknown option $arg: usage: scripts/setup-host.sh [--dev] [--vm]" ;;
	esac
done

# static_busybox: the package busybox brings one of the same name that needs libraries.
static_busybox() { has busybox && ! ldd "$(command -v busybox)" >/dev/null 2>&1; }

# want COMMAND PACKAGE: PACKAGE is missing if COMMAND is not found.
missing=
want() { has "$1" || missing="$missing $2"; }

find_missing() {
	missing=
	want dockerd docker.io
	want docker docker.io
	want containerd containerd
	want runc runc
	want iptables iptables
	want mmdebstrap mmdebstrap
	# A minimal host has neither, and `go build` of a checkout and mmdebstrap need them.
	[ -d /etc/ssl/certs ] && [ -e /etc/ssl/certs/ca-certificates.crt ] || missing="$missing ca-certificates"
	want git git
	want make make
	if $dev; then
		want clang-14 clang-14
		want g++ g++
		want llvm-strip-14 llvm-14
		[ -e /usr/include/bpf/bpf_helpers.h ] || missing="$missing libbpf-dev"
		want promtool prometheus
		# Without these tests skip: the engines', the packages', the probes'.
		static_busybox || missing="$missing busybox-static"
		want lintian lintian
		want rpm rpm
		want ssh-keygen openssh-client
		want systemd-analyze systemd
		want dbus-daemon dbus-daemon
		want ip iproute2
		want column bsdextrautils
		want npm npm # programs of its registry, for the zoo; what checks the page
		want chromium chromium # the page is looked at with it
		[ -x /usr/bin/python3 ] || missing="$missing python3"
		[ -d /usr/lib/python3/dist-packages/pandas ] || missing="$missing python3-pandas" # docs/pandas.md is run
		want curl curl # as the pages ask the API
		want zstd zstd # as the pages unpack
		want zsh zsh # the tab key is pressed in it
		want fish fish # it is asked what it completes
		want lua5.1 lua5.1 # Slurm's plugin of docs/examples/place runs, alone and in Slurm's controller
		want slurmctld slurmctld
		want sbatch slurm-client
		want gcc gcc
		want flock util-linux
		[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
		want aarch64-linux-gnu-gcc "gcc-aarch64-linux-gnu libc6-dev-arm64-cross" # trimtab-nvml for arm64
		want mpicc.mpich "mpich libmpich-dev" # the real libraries whose waits probes/mpi times
		want mpicc.openmpi "openmpi-bin libopenmpi-dev"
		[ -d /usr/lib/python3/dist-packages/mpi4py ] || missing="$missing python3-mpi4py"
		# The real libraries whose functions probes/ticks counts.
		for lib in xgboost0 fann2; do
			ls /usr/lib/*/lib${lib%?}.so.${lib##*[a-z]} >/dev/null 2>&1 || missing="$missing lib$lib"
		done
		want g++ g++
		ls /usr/lib/*/libtorch.so >/dev/null 2>&1 || missing="$missing libtorch-dev"
	fi
	if $vm; then
		want qemu-system-x86_64 qemu-system-x86
		want mkfs.ext4 e2fsprogs
		static_busybox || missing="$missing busybox-static"
		want cpio cpio
		want xz xz-utils
		want depmod kmod
		want gcc gcc
		want g++ g++
		want flock util-linux
		[ -e /usr/include/stdio.h ] || missing="$missing libc6-dev"
	fi
	missing=$(echo "$missing" | tr ' ' '\n' | sort -u | tr '\n' ' ' | sed 's/^ *//; s/ *$//')
}

# keep_services_down makes maintainer scripts start nothing while apt runs; an
# administrator's own policy-rc.d stays as it is.
policy=/usr/sbin/policy-rc.d
keep_services_down() {
	[ ! -e $policy ] || return 0
	printf '#!/bin/sh\nexit 101\n' >$policy
	chmod 755 $policy
	trap 'rm -f $policy' EXIT
	trap 'exit 130' INT TERM
}

install_missing() {
	[ "$(id -u)" = 0 ] || die "not root, and these packages are missing: $missing. Run as root, or: apt-get install $missing"
	has apt-get || die "no apt-get here, and these are missing: $missing. Debian 12 is what this script knows"
	say "missing: $missing; installing"
	keep_services_down
	log=$(mktemp)
	apt-get update -qq >"$log" 2>&1 || {
		cat "$log" >&2
		die "apt-get update failed: is the package mirror in /etc/apt reachable?"
	}
	# shellcheck disable=SC2086 # a list of names
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends \
		-o Dpkg::Options::=--force-unsafe-io $missing >"$log" 2>&1 || {
		tail -20 "$log" >&2
		die "apt-get install $missing failed: see above"
	}
	rm -f "$log"
	hash -r
	find_missing
	[ -z "$missing" ] || die "still missing after the installation: $missing. Install by hand"
}

answers() { docker version --format '{{.Server.Version}}' 2>/dev/null; }

# cgroup_ready: dockerd refuses to start without a devices controller or cgroup v2.
cgroup_ready() { [ -e /sys/fs/cgroup/cgroup.controllers ] || grep -q '^cgroup.*\bdevices\b' /proc/mounts; }

# mount_cgroups gives a host without systemd the layout dockerd needs.
mount_cgroups() {
	! cgroup_ready || return 0
	if grep -q '/sys/fs/cgroup' /proc/mounts; then
		mount -o remount,rw /sys/fs/cgroup 2>/dev/null || true
	else
		mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup || die "cannot mount /sys/fs/cgroup: Docker needs it; run on a host, not in a container"
	fi
	for controller in $(awk '$4 == 1 && $1 !~ /^#/ { print $1 }' /proc/cgroups); do
		mkdir -p "/sys/fs/cgroup/$controller"
		mount -t cgroup -o "$controller" cgroup "/sys/fs/cgroup/$controller" 2>/dev/null || rmdir "/sys/fs/cgroup/$controller"
	done
	cgroup_ready || die "no cgroup controllers could be mounted below /sys/fs/cgroup: Docker needs them"
	say "mounted the cgroup controllers below /sys/fs/cgroup"
}

start_docker() {
	[ "$(id -u)" = 0 ] || die "Docker does not answer and you are not root: run as root, or start Docker, or join the group docker"
	if [ -d /run/systemd/system ]; then
		systemctl start docker || die "systemctl start docker failed: see journalctl -u docker"
		how="systemctl start docker"
	else
		mount_cgroups
		# Without the caller's other files: dockerd would hold its locks for good.
		setsid dockerd >>$docker_log 2>&1 </dev/null 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&- &
		how="dockerd, log in $docker_log"
	fi
	i=0
	until answers >/dev/null; do
		i=$((i + 1))
		[ $i -le $((docker_wait_s * 5)) ] || die "started Docker ($how) but it does not answer after $docker_wait_s s: see the last lines of $docker_log or journalctl -u docker"
		sleep 0.2
	done
	say "started Docker $(answers) ($how)"
}

# check_go: Go is not in Debian 12 in a version that will do, so it is not installed here.
check_go() {
	has go || [ ! -x /usr/local/go/bin/go ] || PATH=$PATH:/usr/local/go/bin
	has go || die "go is not on PATH: install Go $min_go or newer from https://go.dev/dl and put its bin directory on PATH"
	version=$(GOTOOLCHAIN=local go env GOVERSION | sed 's/^go//; s/[^0-9.].*//')
	lowest=$(printf '%s\n%s\n' "$min_go" "$version" | sort -V | head -1)
	[ "$lowest" = "$min_go" ] || die "Go $version at $(command -v go) is too old: install Go $min_go or newer from https://go.dev/dl"
	case " $(go env GOFLAGS) " in
	*" -mod=vendor "*) die "GOFLAGS has -mod=vendor, and there is no vendor folder: go env -u GOFLAGS, or unset GOFLAGS" ;;
	esac
}

[ "$(uname -s)" = Linux ] || die "this is $(uname -s): trimtab runs on Linux"
check_go
find_missing
[ -z "$missing" ] || install_missing
answers >/dev/null || start_docker
[ -e /sys/kernel/btf/vmlinux ] || say "no BTF (/sys/kernel/btf/vmlinux): trimtab cannot watch or tune here; a kernel with CONFIG_DEBUG_INFO_BTF fixes it"
say "ready: Go $version, Docker $(answers)"
