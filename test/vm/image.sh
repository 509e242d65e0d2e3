#!/bin/bash
# Builds the guest of `make test-vm` from Debian's packages: root.ext4, vmlinuz and
# initrd in a folder named by what they are made of, whose path is the last line
# printed. Needs root, mmdebstrap, mkfs.ext4, busybox-static, cpio and kmod
# (scripts/setup-host.sh --vm). A folder that is there already is taken as it is.
#
# TRIMTAB_CACHE    where the folder goes    (.cache/vm in the repository)
# TRIMTAB_MIRROR   the Debian mirror        (http://deb.debian.org/debian)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${TRIMTAB_CACHE:-$here/../../.cache/vm}
mirror=${TRIMTAB_MIRROR:-http://deb.debian.org/debian}
suite=bookworm
kernel=linux-image-cloud-amd64
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
	local root=$1 work version module
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
			cp "$file" "$work/modules/"
			echo "/bin/busybox insmod /modules/$(basename "$file")"
		done
		echo 'n=0; until [ -b /dev/vda ] || [ $n = 100 ]; do n=$((n+1)); /bin/busybox sleep 0.1; done'
		echo '/bin/busybox mount -t ext4 /dev/vda /root && /bin/busybox umount /dev; exec /bin/busybox switch_root /root /sbin/init'
	} >"$work/init"
	chmod 755 "$work/init"
	(cd "$work" && find . | cpio --quiet -o -H newc | gzip -1) >"$2"
	rm -rf "$work"
}

[ "$(id -u)" = 0 ] || die "needs root"
for tool in mmdebstrap mkfs.ext4 cpio depmod modprobe; do
	command -v $tool >/dev/null || die "no $tool: run scripts/setup-host.sh --vm"
done

hash=$(cat "$here/image.sh" | sha256sum | cut -c1-16)
out=$cache/$suite-$hash
mkdir -p "$cache"
exec 9>"$cache/.lock"
flock 9
if [ ! -e "$out/root.ext4" ]; then
	start=$SECONDS
	say "building Debian $suite with Docker from its packages (about two minutes with a near mirror)"
	work=$(mktemp -d "$cache/root.XXXXXX")
	trap 'rm -rf "$work" "$out.part"' EXIT
	chmod 755 "$work"
	rm -rf "$cache/$suite"-*
	mkdir "$out.part"
	# The kernel's package is unpacked, not installed: its scripts would make an initrd.
	# It brings a /lib of its own, where the root has a link.
	# shellcheck disable=SC2016 # the hooks' own variables
	mmdebstrap --quiet --variant=apt --format=directory --aptopt='Apt::Install-Recommends "0"' \
		--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/share/man/*' \
		--include="$packages" \
		--customize-hook='export APT_CONFIG=$MMDEBSTRAP_APT_CONFIG; mkdir "$1/kernel"; cd "$1/kernel" &&
			apt-get -qq download $(apt-cache depends '$kernel' | awk "/Depends: linux-image/ {print \$2; exit}") &&
			dpkg-deb -x linux-image-*.deb . && mv lib/modules "$1/usr/lib/" && mv boot/vmlinuz-* "$1/boot/" && cd / && rm -rf "$1/kernel"' \
		"$suite" "$work" "$mirror" >&2 || die "mmdebstrap failed: is $mirror reachable?"
	settle "$work"
	small_root "$work" "$out.part/initrd"
	mv "$work"/boot/vmlinuz-* "$out.part/vmlinuz"
	mkfs.ext4 -q -d "$work" "$out.part/root.ext4" $size >&2 # it names the file that it creates
	mv "$out.part" "$out"
	say "built in $((SECONDS - start)) s, $(du -m "$out/root.ext4" | cut -f1) MB"
fi
echo "$out"
