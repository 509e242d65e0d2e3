package nccl

import (
	"github.com/trimtab/trimtab/probes"
	"github.com/trimtab/trimtab/probes/uprobe"
)

// Hook names the uprobes in what they spend.
const Hook = "nccl.call"

// Parts of a cookie's code: CODE_* and KIND_* of bpf/nccl.bpf.c.
const (
	early    uint32 = 1 << 8
	initByID uint32 = 0x80
	initFlat uint32 = 0x81
	initAll  uint32 = 0x82
)

// functions lists what is probed. Not ncclBcast, which calls ncclBroadcast, nor the
// pnccl names, which are the same functions.
//
//trimtab:table NCCL's calls and how to read them
var functions = map[string]uint32{
	"ncclAllReduce":     uint32(probes.AllReduce),
	"ncclReduceScatter": uint32(probes.ReduceScatter),
	"ncclAllGather":     uint32(probes.AllGather),
	"ncclBroadcast":     uint32(probes.Broadcast),
	"ncclReduce":        uint32(probes.Reduce),
	"ncclAlltoAll":      uint32(probes.AllToAll),
	"ncclAllToAll":      uint32(probes.AllToAll),
	"ncclGather":        uint32(probes.Reduce), // from NCCL 2.28 on; many to one, as a reduction is
	"ncclScatter":       uint32(probes.Broadcast),
	"ncclSend":          uint32(probes.Send) | early,
	"ncclRecv":          uint32(probes.Recv) | early,

	"ncclCommInitRank":         initByID,
	"ncclCommInitRankConfig":   initByID,
	"ncclCommInitRankScalable": initFlat,
	"ncclCommInitAll":          initAll,
}

func match(symbol string) (uprobe.Point, bool) {
	code, ok := functions[symbol]
	return uprobe.Point{Code: code}, ok
}
