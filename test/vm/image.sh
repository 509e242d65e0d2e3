#!/bin/bash
# Builds the guest of `make test-vm` from Debian's packages: root.ext4, vmlinuz,
# initrd and what emulates it, qemu, in a folder named by what they are made of, whose
# path is the last line printed. Needs root, mmdebstrap, mkfs.ext4, busybox-static, cpio,
# kmod and qemu-system-x86 (scripts/setup-host.sh --vm). A folder that is there already
# is taken as it is.
#
# TRIMTAB_CACHE      where the folder goes                 (.cache/vm in the repository)
# TRIMTAB_MIRROR     the Debian mirror                     (http://deb.debian.org/debian)
# TRIMTAB_VM_KERNEL  the suite that the kernel comes from  (the guest's own, bookworm)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=$(realpath -m "${TRIMTAB_CACHE:-$here/../../.cache/vm}")
mirror=${TRIMTAB_MIRROR:-http://deb.debian.org/debian}
suite=bookworm
kernel=${TRIMTAB_VM_KERNEL:-$suite}
least=10 # QEMU's major version
size=4G # sparse: it takes what is in it
# What a Docker host has. init-system-helpers brings deb-systemd-helper, busybox-static the
# root of the conformance suite's containers.
packages=systemd,systemd-sysv,dbus,udev,init-system-helpers,apt,docker.io,containerd,runc,apparmor,iptables,iproute2,kmod,procps,busybox-static

say() { echo "vm: $*" >&2; }
die() {
	say "$*"
	exit 1
}

# settle makes an unpacked root ($1) a machine that boots quickly and answers.
settle() {
	local root=$1
	echo trimtab-vm >"$root/etc/hostname"
	echo '127.0.0.1 localhost trimtab-vm' >"$root/etc/hosts"
	echo '/dev/vda / ext4 rw,noatime 0 0' >"$root/etc/fstab"
	: >"$root/etc/machine-id"
	mkdir -p "$root/var/log/journal" "$root/etc/docker" "$root/opt/vm" # the journal outlives a reboot
	# As GPU hosts have it: containers live on while Docker is restarted. The runtime
	# "nvidia" is plain runc: what NVIDIA's hook would do to rules, a test does. Without
	# a network, which no test uses, Docker starts sooner.
	cat >"$root/etc/docker/daemon.json" <<-'END'
		{"live-restore": true, "runtimes": {"nvidia": {"path": "runc"}}, "bridge": "none", "iptables": false, "ip6tables": false}
	END
	cat >"$root/etc/systemd/system/vm-agent.service" <<-'END'
		[Unit]
		Description=carries out what the tests outside ask for
		Wants=sys-subsystem-net-devices-eth0.device
		After=sys-subsystem-net-devices-eth0.device
		StartLimitIntervalSec=0
		[Service]
		ExecStartPre=/bin/sh -c 'ip link set lo up; ip link set eth0 up; ip address replace 10.0.2.15/24 dev eth0'
		ExecStartPre=/bin/tar -xf /dev/vdb -C /opt/vm
		ExecStart=/opt/vm/inside serve
		Restart=always
		RestartSec=1
		StandardError=journal+console
		[Install]
		WantedBy=multi-user.target
	END
	chroot "$root" systemctl --quiet enable vm-agent.service
	chroot "$root" systemctl --quiet mask getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer \
		dpkg-db-backup.timer e2scrub_all.timer fstrim.timer systemd-networkd-wait-online.service systemd-binfmt.service
	rm -rf "$root"/etc/dpkg/dpkg.cfg.d/99mmdebstrap "$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/*
	: >"$root/etc/apt/sources.list" # it has no network: what it lacks is missing
}

# small_root makes an initrd ($2) that finds the disk of root $1; Debian's own would
# take a minute to unpack under emulation.
small_root() {
	local root=$1 work version module name
	work=$(mktemp -d)
	version=$(ls "$root/lib/modules")
	depmod -b "$root" "$version"
	mkdir -p "$work"/{bin,dev,root,modules}
	cp "$root/bin/busybox" "$work/bin/"
	{
		echo '#!/bin/busybox sh'
		echo 'echo trimtab-vm: the kernel runs'
		echo '/bin/busybox mount -t devtmpfs dev /dev'
		for module in virtio_pci virtio_blk ext4; do
			modprobe -d "$root" -S "$version" --show-depends $module
		done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
			name=$(basename "$file" .xz) # newer kernels' are compressed, which busybox does not read
			if [ "$name" = "$(basename "$file")" ]; then cat "$file"; else xz -dc "$file"; fi >"$work/modules/$name"
			echo "/bin/busybox insmod /modules/$name"
		done
		echo 'n=0; until [ -b /dev/vda ] || [ $n = 100 ]; do n=$((n+1)); /bin/busybox sleep 0.1; done'
		echo '/bin/busybox mount -t ext4 /dev/vda /root && /bin/busybox umount /dev; exec /bin/busybox switch_root /root /sbin/init'
	} >"$work/init"
	chmod 755 "$work/init"
	(cd "$work" && find . | cpio --quiet -o -H newc | gzip -1) >"$2"
	rm -rf "$work"
}

# major is a QEMU's ($1) major version, 0 of none.
major() { "$1" --version 2>/dev/null | sed -n '1s/.*version \([0-9]*\).*/\1/p' | grep . || echo 0; }

# emulator makes a folder's ($1) qemu, the command that emulates the guest: the host's, or
# where that is older than $least Debian's backport, unpacked there and not installed.
# QEMU 7.2 goes on executing what another processor of the guest has just overwritten, and
# such a guest stands still (docs/vm.md).
emulator() {
	[ "$(major "$1/qemu")" -lt $least ] || return 0
	rm -rf "$1/qemu" "$1/qemu.d"
	if [ "$(major qemu-system-x86_64)" -lt $least ]; then
		backport "$1/qemu.d" >&2 && [ "$(major "$1/qemu.d/qemu")" -ge $least ] && ln -s qemu.d/qemu "$1/qemu" && return
		say "no QEMU $least from $suite-backports: with the host's a guest may stand still"
	fi
	ln -sf "$(command -v qemu-system-x86_64)" "$1/qemu"
}

# backport unpacks the QEMU of Debian's backports in a folder ($1), and makes its command
# there. Its libraries are those that the host's has brought.
backport() (
	unpack "$1" "$suite-backports" qemu-system-x86 '^(qemu-system-(x86|common|data)|seabios)$' || exit
	cd "$1" || exit
	printf '%s\n' '#!/bin/sh' 'usr=$(dirname "$(readlink -f "$0")")/usr' \
		'exec "$usr/bin/qemu-system-x86_64" -L "$usr/share/qemu" -L "$usr/share/seabios" "$@"' >qemu
	chmod 755 qemu
)

# unpack unpacks in a folder ($1), without installing, what of a suite's ($2) package ($3)
# and all that it needs has a name that matches ($4).
unpack() (
	mkdir -p "$1"/{lists,cache/archives}/partial
	cd "$1" || exit
	echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $2 main" >list
	apt=(-qq -t "$2" -o APT::Sandbox::User=root -o "Dir::Etc::SourceList=$1/list" -o Dir::Etc::SourceParts=/dev/null
		-o "Dir::State::Lists=$1/lists" -o "Dir::Cache=$1/cache" -o Dir::State::status=/dev/null)
	apt-get "${apt[@]}" update || exit
	needs=(depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances)
	mapfile -t names < <(apt-cache "${apt[@]}" "${needs[@]}" "$3" | grep -E "$4")
	apt-get "${apt[@]}" download "${names[@]:?nothing of $3 in $2}" || exit
	for package in *.deb; do dpkg-deb -x "$package" . || exit; done
	rm -rf ./*.deb lists cache list
)

# take_kernel puts a suite's kernel and its modules in an unpacked root ($1). Its scripts do
# not run: they would make an initrd.
take_kernel() {
	local work=$1.kernel
	mkdir "$work"
	unpack "$work" "$kernel" linux-image-cloud-amd64 '^linux-(image|base|binary|modules)-[0-9]' >&2 || die "no kernel from $mirror $kernel"
	mv "$(find "$work" -name 'vmlinuz*')" "$1/boot/vmlinuz"
	mv "$(find "$work" -type d -path '*/lib/modules')" "$1/usr/lib/"
	rm -rf "$work"
}

[ "$(id -u)" = 0 ] || die "needs root"
for tool in qemu-system-x86_64 mmdebstrap mkfs.ext4 cpio depmod modprobe xz; do
	command -v $tool >/dev/null || die "no $tool: run scripts/setup-host.sh --vm"
done

hash=$(sha256sum <"$here/image.sh" | cut -c1-16)
out=$cache/$kernel-$hash
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [ ! -e "$out/root.ext4" ]; then
	start=$SECONDS
	say "building Debian $suite with Docker and the kernel of $kernel from its packages (about two minutes with a near mirror)"
	work=$(mktemp -d "$cache/root.XXXXXX")
	trap 'rm -rf "$work" "$work.kernel" "$out.part"' EXIT
	chmod 755 "$work"
	find "$cache" -maxdepth 1 -type d -name '*-????????????????' ! -name "*-$hash" -exec rm -rf {} +
	mkdir "$out.part"
	mmdebstrap --quiet --variant=apt --format=directory --aptopt='Apt::Install-Recommends "0"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--include="$packages" "$suite" "$work" "$mirror" >&2 || die "mmdebstrap failed: is $mirror reachable?"
	take_kernel "$work"
	settle "$work"
	small_root "$work" "$out.part/initrd"
	mv "$work/boot/vmlinuz" "$out.part/vmlinuz"
	mkfs.ext4 -q -d "$work" "$out.part/root.ext4" $size >&2 # it names the file that it creates
	mv "$out.part" "$out"
	say "built in $((SECONDS - start)) s, $(du -m "$out/root.ext4" | cut -f1) MB"
fi
emulator "$out"
echo "$out"
