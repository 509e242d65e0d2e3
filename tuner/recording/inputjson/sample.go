package inputjson

import "github.com/trimtab/trimtab/probes"

func (e *encoder) kernel(k *probes.Kernel) {
	e.open()
	e.key(`"threads":`)
	list(e, k.Threads, (*encoder).thread)
	if len(k.Ticks) > 0 {
		e.key(`"ticks":`)
		e.any(k.Ticks)
	}
	if k.Block != (probes.Block{}) {
		e.key(`"block":`)
		e.any(k.Block)
	}
	e.some(`"lost":`, k.Lost)
	e.flag(`"seeding":`, k.Seeding)
	e.texts(`"missing":`, k.Missing)
	e.close()
}

func (e *encoder) thread(t *probes.Thread) {
	e.open()
	e.key(`"tid":`)
	e.int(int64(t.TID))
	e.key(`"tgid":`)
	e.int(int64(t.TGID))
	e.key(`"ppid":`)
	e.int(int64(t.PPID))
	e.key(`"start":`)
	e.uint(t.StartNs)
	e.key(`"comm":`)
	e.string(t.Comm)
	e.flag(`"exited":`, t.Exited)
	e.key(`"since":`)
	e.int(t.SinceNs)
	e.key(`"at":`)
	e.int(t.AtNs)
	e.key(`"ns":`)
	list(e, t.Ns[:], func(e *encoder, v *uint64) { e.uint(*v) })
	e.key(`"n":`)
	list(e, t.Count[:], func(e *encoder, v *uint64) { e.uint(*v) })
	e.key(`"last":`)
	list(e, t.LastNs[:], func(e *encoder, v *int64) { e.int(*v) })
	e.some(`"reclaim":`, t.ReclaimNs)
	e.some(`"sibling":`, t.SiblingNs)
	e.some(`"alone":`, t.AloneNs)
	e.some(`"preempted":`, t.Preempted)
	e.some(`"io":`, t.IOBytes)
	e.some(`"faults":`, t.Faults)
	if len(t.Edges) > 0 {
		e.key(`"edges":`)
		list(e, t.Edges, (*encoder).edge)
	}
	e.close()
}

func (e *encoder) edge(x *probes.Edge) {
	e.open()
	e.key(`"w":`)
	e.int(int64(x.Waker))
	e.key(`"s":`)
	e.uint(uint64(x.State))
	e.key(`"n":`)
	e.uint(x.Count)
	e.key(`"ns":`)
	e.uint(x.Ns)
	e.close()
}

func (e *encoder) cgroup(c *probes.Cgroup) {
	e.open()
	e.key(`"at":`)
	e.int(c.AtNs)
	e.key(`"cpu":`)
	e.uint(c.CPUUsageNs)
	e.key(`"weight":`)
	e.uint(c.CPUWeight)
	e.text(`"cpuset":`, c.Cpuset)
	if len(c.Throttling) > 0 {
		e.key(`"throttling":`)
		list(e, c.Throttling, (*encoder).throttling)
	}
	e.key(`"mem":`)
	e.uint(c.MemoryBytes)
	e.key(`"memLimit":`)
	e.int(c.MemoryLimit)
	for _, f := range [...]struct {
		key string
		v   uint64
	}{
		{`"anon":`, c.Anon}, {`"file":`, c.File}, {`"shmem":`, c.Shmem}, {`"inactiveFile":`, c.InactiveFile},
		{`"refaultFile":`, c.RefaultFile}, {`"refaultAnon":`, c.RefaultAnon}, {`"majflt":`, c.MajorFaults},
		{`"eventsMax":`, c.EventsMax}, {`"eventsHigh":`, c.EventsHigh}, {`"oomKills":`, c.OOMKills}, {`"pids":`, c.PIDs},
	} {
		e.key(f.key)
		e.uint(f.v)
	}
	if len(c.Disks) > 0 {
		e.key(`"disks":`)
		list(e, c.Disks, (*encoder).disk)
	}
	e.flag(`"psi":`, c.HasPSI)
	e.pressure(`"psiCPU":`, c.CPU)
	e.pressure(`"psiMemory":`, c.Memory)
	e.pressure(`"psiIO":`, c.IO)
	e.texts(`"missing":`, c.Missing)
	e.close()
}

func (e *encoder) throttling(t *probes.Throttling) {
	e.open()
	e.key(`"periods":`)
	e.uint(t.Periods)
	e.key(`"throttled":`)
	e.uint(t.Throttled)
	e.key(`"ns":`)
	e.uint(t.Ns)
	e.key(`"quota":`)
	e.int(t.QuotaUs)
	e.key(`"period":`)
	e.int(t.PeriodUs)
	e.close()
}

func (e *encoder) disk(d *probes.DiskUse) {
	e.open()
	e.key(`"dev":`)
	e.string(d.Device)
	e.key(`"bytes":`)
	e.uint(d.Bytes)
	e.close()
}

func (e *encoder) pressure(key string, p probes.Pressure) {
	if p == (probes.Pressure{}) {
		return
	}
	e.key(key)
	e.open()
	e.key(`"some":`)
	e.uint(p.SomeUs)
	e.key(`"full":`)
	e.uint(p.FullUs)
	e.close()
}

func (e *encoder) network(n *probes.Network) {
	e.open()
	e.key(`"at":`)
	e.int(n.AtNs)
	e.key(`"sockets":`)
	e.int(int64(n.Sockets))
	e.key(`"rx":`)
	e.uint(n.RxBytes)
	e.key(`"tx":`)
	e.uint(n.TxBytes)
	e.some(`"local":`, n.LocalBytes)
	e.key(`"segments":`)
	e.uint(n.Segments)
	e.key(`"retrans":`)
	e.uint(n.Retransmits)
	e.someFloat(`"rtt":`, n.RTTUs)
	if n.BusySockets != 0 {
		e.key(`"busy":`)
		e.int(int64(n.BusySockets))
	}
	if n.LimitedSockets != 0 {
		e.key(`"limited":`)
		e.int(int64(n.LimitedSockets))
	}
	if len(n.Links) > 0 {
		e.key(`"links":`)
		list(e, n.Links, (*encoder).link)
	}
	e.flag(`"sharesHost":`, n.SharesHost)
	e.texts(`"missing":`, n.Missing)
	e.close()
}

func (e *encoder) link(l *probes.Link) {
	e.open()
	e.key(`"name":`)
	e.string(l.Name)
	e.key(`"rx":`)
	e.uint(l.RxBytes)
	e.key(`"tx":`)
	e.uint(l.TxBytes)
	e.someFloat(`"max":`, l.MaxBps)
	e.flag(`"rdma":`, l.RDMA)
	e.some(`"congestion":`, l.Congestion)
	e.close()
}
