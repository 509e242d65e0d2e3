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
var functions = map[string]uprobe.Point{
	"ncclAllReduce":     {Code: uint32(probes.AllReduce)},
	"ncclReduceScatter": {Code: uint32(probes.ReduceScatter)},
	"ncclAllGather":     {Code: uint32(probes.AllGather)},
	"ncclBroadcast":     {Code: uint32(probes.Broadcast)},
	"ncclReduce":        {Code: uint32(probes.Reduce)},
	"ncclAlltoAll":      {Code: uint32(probes.AllToAll)},
	"ncclAllToAll":      {Code: uint32(probes.AllToAll)},
	"ncclGather":        {Code: uint32(probes.Reduce)}, // from NCCL 2.28 on; many to one, as a reduction is
	"ncclScatter":       {Code: uint32(probes.Broadcast)},
	"ncclSend":          {Code: uint32(probes.Send) | early},
	"ncclRecv":          {Code: uint32(probes.Recv) | early},

	"ncclCommInitRank":         {Code: initByID},
	"ncclCommInitRankConfig":   {Code: initByID},
	"ncclCommInitRankScalable": {Code: initFlat},
	"ncclCommInitAll":          {Code: initAll},
}
