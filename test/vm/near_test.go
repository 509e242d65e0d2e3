package vm

import (
	"testing"
)

// near: the guest's two processors are a memory node each, and NVML says which of them is
// near the job's device, a virtual one. The other is busy. The set is moved, is read back
// from the kernel, and is its owner's again; that it pays is for the trial to say, not here.
func near(t *testing.T, m *machine) {
	m.sh(t, `mkdir -p /run/vgpu /run/systemd/system/trimtab.service.d
export TRIMTAB_VGPU_NODE=/run/vgpu/node; /opt/vm/vgpu/vgpu-node create --devices 1 --spec cpus=0,numa=0
printf '[Service]\nEnvironment=TRIMTAB_VGPU_NODE=/run/vgpu/node LD_LIBRARY_PATH=/opt/vm/vgpu\nReadWritePaths=/run/vgpu\n' >/run/systemd/system/trimtab.service.d/vgpu.conf
systemctl daemon-reload; systemctl restart trimtab
docker run -d --name noise --network none --cpuset-cpus 1 job-image sh -c 'while :; do :; done'
docker run -d --name far --network none --cpuset-cpus 0-1 --label trimtab.mode=tune --label trimtab.knobs=cpuset -v /run/vgpu:/run/vgpu -e TRIMTAB_VGPU_NODE=/run/vgpu/node job-image \
	trainer --kernels 4 --kernel-us 5000 --sync blocking --host-ms 30`)
	defer m.sh(t, `docker rm -f far noise; rm -r /run/systemd/system/trimtab.service.d; systemctl daemon-reload; systemctl restart trimtab`)
	set := "cat " + m.cgroup(t, "far") + "/cpuset.cpus"
	until(t, "the CPUs near its device", func() (string, bool) {
		got := m.sh(t, set)
		return got + m.container(t, "far").WhyNot, got == "0"
	})
	m.sh(t, "trimtab restore far")
	if got := m.sh(t, set); got != "0-1" {
		t.Errorf("restored to CPUs %q", got)
	}
}
