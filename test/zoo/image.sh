#!/bin/sh
# Builds the Docker image that `make zoo` runs programs of others in, all of them Debian's: for
# Python, C, C++, Java, R, Perl, Node, Open MPI and MPICH. The programs of ours are mounted.
#
# TRIMTAB_ZOO_IMAGE  its name (trimtab-zoo:1)
# TRIMTAB_CACHE      where the tar is kept (.cache/image in the repository)
# TRIMTAB_MIRROR     the Debian mirror (http://deb.debian.org/debian)
set -eu

here=$(cd "$(dirname "$0")" && pwd)
image=${TRIMTAB_ZOO_IMAGE:-trimtab-zoo:1}
cache=${TRIMTAB_CACHE:-$here/../../.cache/image}
mirror=${TRIMTAB_MIRROR:-http://deb.debian.org/debian}
suite=bookworm
packages=python3,python3-xgboost,python3-sklearn,python3-mpi4py,openmpi-bin,mpich,procps,gzip,bash,coreutils
packages=$packages,liblinear-tools,libsvm-tools,fasttext,lammps,ffmpeg,nodejs,libai-fann-perl
packages=$packages,python3-gensim,python3-torch,python3-torchvision,weka,default-jre-headless,r-base-core,r-cran-randomforest,r-cran-gbm
packages=$packages,povray,imagemagick,iqtree,hmmer,minimap2,bwa,stockfish,darknet,xgboost,r-cran-nnet
# What they depend on and nothing here runs: a client of a cloud, headers, potentials, documents.
unused='usr/lib/python3/dist-packages/azure usr/include/boost usr/share/lammps usr/share/doc usr/share/locale'
label=org.trimtab.zoo.hash

say() { echo "zoo: $*"; }
die() {
	echo "zoo: $*" >&2
	exit 1
}

docker version >/dev/null 2>&1 || die "no Docker daemon answers: run scripts/setup-host.sh"
hash=$(sha256sum "$here/image.sh" | cut -c1-16)
have=$(docker image inspect -f "{{index .Config.Labels \"$label\"}}" "$image" 2>/dev/null || true)
if [ "$have" = "$hash" ]; then
	say "$image is up to date"
	exit 0
fi
tar=$cache/zoo-$suite-$hash.tar
if [ ! -f "$tar" ]; then
	command -v mmdebstrap >/dev/null || die "mmdebstrap is not on PATH: run scripts/setup-host.sh"
	mkdir -p "$cache"
	say "installing Debian $suite's packages of programs that train (about five minutes)"
	mmdebstrap --quiet --format=tar --variant=minbase --aptopt='Apt::Install-Recommends "0"' --include="$packages" \
		--customize-hook="cd \"\$1\" && rm -rf $unused" \
		"$suite" "$tar.part" "$mirror" || die "mmdebstrap failed: is $mirror reachable?"
	rm -f "$cache"/zoo-*.tar
	mv "$tar.part" "$tar"
fi
docker import --change "LABEL $label=$hash" --change 'ENV PATH=/usr/sbin:/usr/bin:/sbin:/bin' \
	--change 'ENV PYTHONUNBUFFERED=1' --change 'ENV LC_ALL=C.UTF-8' - "$image" <"$tar" >/dev/null || die "docker import of $tar failed"
say "built $image"
