#!/bin/sh
# Installs and removes what stands around the binary; called by the Makefile.
#
#   install.sh install|uninstall|purge DESTDIR BINDIR SYSCONFDIR UNITDIR SYSUSERSDIR TMPFILESDIR DATADIR
#
# With a DESTDIR (packaging) files are placed or removed and nothing else is
# touched: no groups, no systemd, no containers.
set -eu

action=$1 destdir=$2 bindir=$3 sysconfdir=$4 unitdir=$5 sysusersdir=$6 tmpfilesdir=$7 datadir=$8
here=$(dirname "$0")
bin=$bindir/trimtab
libexec=$(dirname "$bindir")/libexec/trimtab # where trimtab looks for trimtab-nvml
units="trimtab.service trimtab-restore.service"
bash_completion=$datadir/bash-completion/completions/trimtab
zsh_completion=$datadir/zsh/site-functions/_trimtab
fish_completion=$datadir/fish/vendor_completions.d/trimtab.fish

say() { echo "$action: $*"; }
die() {
	echo "$action: $*" >&2
	exit 1
}
systemd_runs() { [ -d /run/systemd/system ]; }

place_files() {
	for unit in $units; do
		install -d "$destdir$unitdir"
		sed "s|^ExecStart=/usr/bin/trimtab|ExecStart=$bin|" "$here/$unit" >"$destdir$unitdir/$unit"
		chmod 0644 "$destdir$unitdir/$unit"
	done
	install -D -m 0644 "$here/trimtab.sysusers" "$destdir$sysusersdir/trimtab.conf"
	install -D -m 0644 "$here/trimtab.tmpfiles" "$destdir$tmpfilesdir/trimtab.conf"
	install -d "$destdir$sysconfdir/trimtab/conf.d"
	# A config that is there belongs to the administrator.
	if [ ! -e "$destdir$sysconfdir/trimtab/trimtab.yaml" ]; then
		install -m 0644 "$here/../tuner/config/example.yaml" "$destdir$sysconfdir/trimtab/trimtab.yaml"
	fi
	if [ -e "$here/../bin/trimtab-nvml" ]; then # a host without gcc built none
		install -D -m 0755 "$here/../bin/trimtab-nvml" "$destdir$libexec/trimtab-nvml"
	else
		rm -f "$destdir$libexec/trimtab-nvml" # of a version before
	fi
	completion bash "$bash_completion"
	completion zsh "$zsh_completion"
	completion fish "$fish_completion"
}

# completion SHELL FILE writes through a variable, so that a failure stops here.
completion() {
	text=$("$destdir$bin" completion "$1")
	install -d "$(dirname "$destdir$2")"
	printf '%s\n' "$text" >"$destdir$2"
	chmod 0644 "$destdir$2"
}

make_groups() {
	if command -v systemd-sysusers >/dev/null 2>&1; then
		systemd-sysusers "$sysusersdir/trimtab.conf"
	else
		for group in trimtab trimtab-read; do
			getent group $group >/dev/null || groupadd --system $group
		done
	fi
	install -d -m 0700 /var/lib/trimtab
}

do_install() {
	place_files
	[ -z "$destdir" ] || return 0
	make_groups
	if systemd_runs; then
		systemctl daemon-reload
		systemctl try-restart trimtab.service # a running one hands over to the new binary
	fi
	say "done: look at $sysconfdir/trimtab/trimtab.yaml, then: systemctl --no-reload enable --now trimtab"
}

# restore_all puts every original back or stops the removal: without the binary
# nobody could.
restore_all() {
	[ -x "$bin" ] || die "$bin is not there: nothing can be restored; originals, if any, are in /var/lib/trimtab/originals"
	if systemd_runs && systemctl is-active --quiet trimtab.service; then
		"$bin" restore || die "not removed: a restore is pending or failed, see above and trimtab ps"
		systemctl stop trimtab.service
	fi
	"$bin" restore --offline || die "not removed: a restore is pending or failed, see above; a daemon that was started by hand must be stopped first"
}

remove_files() {
	for unit in $units; do rm -f "$destdir$unitdir/$unit"; done
	rm -f "$destdir$libexec/trimtab-nvml"
	rmdir "$destdir$libexec" 2>/dev/null || true # it may be somebody else's too
	rm -f "$destdir$bin" "$destdir$sysusersdir/trimtab.conf" "$destdir$tmpfilesdir/trimtab.conf" \
		"$destdir$bash_completion" "$destdir$zsh_completion" "$destdir$fish_completion"
}

do_uninstall() {
	if [ -z "$destdir" ]; then
		restore_all
		if systemd_runs; then systemctl disable --quiet trimtab.service || true; fi
	fi
	remove_files
	if [ -z "$destdir" ] && systemd_runs; then systemctl daemon-reload; fi
	say "done; $sysconfdir/trimtab, /var/lib/trimtab and the groups stay (make purge removes them)"
}

do_purge() {
	[ -z "$destdir" ] || die "purge is for a live system: no DESTDIR"
	[ ! -e "$bin" ] || do_uninstall
	if find /var/lib/trimtab/originals /var/lib/trimtab/gpu-hidden -type f 2>/dev/null | grep -q .; then
		die "/var/lib/trimtab still holds what containers had before (originals, gpu-hidden): install trimtab, run trimtab restore --offline, and look at what it says"
	fi
	rm -rf "$sysconfdir/trimtab" /var/lib/trimtab /run/trimtab
	for group in trimtab trimtab-read; do
		if getent group $group >/dev/null; then groupdel $group; fi
	done
	say "config, history and groups are removed"
}

case $action in
install) do_install ;;
uninstall) do_uninstall ;;
purge) do_purge ;;
*) die "unknown action" ;;
esac
