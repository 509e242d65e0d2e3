#!/bin/bash
# Writes SHA256SUMS of all files of a folder, and signs it as SHA256SUMS.sig:
#
#   scripts/checksums.sh [FOLDER]
#
# TRIMTAB_SIGNING_KEY names an SSH private key; without it nothing is signed. Without
# FOLDER it says whether there is what signing needs. docs/install.md says how to verify.
set -euo pipefail

die() {
	echo "checksums: $*" >&2
	exit 1
}

key=${TRIMTAB_SIGNING_KEY:-}
if [ -n "$key" ]; then
	command -v ssh-keygen >/dev/null || die "ssh-keygen is missing (apt-get install openssh-client): SHA256SUMS cannot be signed"
	[ -r "$key" ] || die "TRIMTAB_SIGNING_KEY=$key cannot be read: SHA256SUMS cannot be signed"
	key=$(realpath "$key")
fi
[ $# -gt 0 ] || exit 0

cd "$1"
rm -f SHA256SUMS SHA256SUMS.sig
export LC_ALL=C # names in the same order everywhere
sums=$(sha256sum -- *)
echo "$sums" >SHA256SUMS
[ -z "$key" ] || ssh-keygen -q -Y sign -f "$key" -n trimtab SHA256SUMS
