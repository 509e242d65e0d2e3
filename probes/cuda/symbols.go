package cuda

import "github.com/trimtab/trimtab/probes/uprobe"

// Hooks, as bpf/cuda_process.h numbers them.
const (
	hookLaunch = iota
	hookCopy
	hookSync
	hookDriverLaunch
)

// Hook names, as the budget sees them. Graph launches are rare and go with the
// synchronisations.
const (
	HookLaunch = "cuda.launch"
	HookCopy   = "cuda.copy"
	HookSync   = "cuda.sync"
)

// virtualSymbol is exported by trimtab's virtual GPU alone.
const virtualSymbol = "trimtab_vgpu_version"

// Parts of a cookie's code: CODE_* of bpf/cuda.bpf.c.
const (
	opLaunch uint32 = iota
	opGraph
	opCopy
	opSync
	opStaged // of a call that is open: an asynchronous copy

	driver uint32 = 1 << 8
	blocks uint32 = 1 << 9
	stages uint32 = 1 << 10 // an asynchronous copy: from pageable memory it blocks

	sizeArg4 uint32 = 1 << 12 // else argument 2
	sizeArea uint32 = 2 << 12 // argument 4 × argument 5

	toDevice       uint32 = 1 << 16
	toHost         uint32 = 2 << 16
	onDevice       uint32 = 3 << 16
	byAddress      uint32 = 4 << 16
	directionArg3  uint32 = 8 << 16
	directionStack uint32 = 9 << 16
)

// function is one of CUDA's calls. With a default stream for each thread a
// program calls the form with the suffix; it is a function of its own.
type function struct {
	name   string
	suffix string
	hook   int
	code   uint32
}

// functions lists what is probed. The driver's copies are those with addresses of
// 64 bits (_v2); the older ones are for programs of before 2010.
//
//trimtab:table CUDA's calls and how to read them
var functions = []function{
	{"cudaLaunchKernel", "_ptsz", hookLaunch, opLaunch},
	{"cudaLaunchKernelExC", "_ptsz", hookLaunch, opLaunch},
	{"cudaLaunchCooperativeKernel", "_ptsz", hookLaunch, opLaunch},
	{"cuLaunchKernel", "_ptsz", hookDriverLaunch, opLaunch | driver},
	{"cuLaunchKernelEx", "_ptsz", hookDriverLaunch, opLaunch | driver},
	{"cuLaunchCooperativeKernel", "_ptsz", hookDriverLaunch, opLaunch | driver},

	{"cudaGraphLaunch", "_ptsz", hookSync, opGraph},
	{"cuGraphLaunch", "_ptsz", hookSync, opGraph | driver},

	{"cudaMemcpy", "_ptds", hookCopy, opCopy | blocks | directionArg3},
	{"cudaMemcpyAsync", "_ptsz", hookCopy, opCopy | stages | directionArg3},
	{"cudaMemcpy2D", "_ptds", hookCopy, opCopy | blocks | sizeArea | directionStack},
	{"cudaMemcpy2DAsync", "_ptsz", hookCopy, opCopy | stages | sizeArea | directionStack},
	{"cudaMemcpyPeer", "", hookCopy, opCopy | blocks | sizeArg4 | onDevice},
	{"cudaMemcpyPeerAsync", "", hookCopy, opCopy | sizeArg4 | onDevice},
	{"cuMemcpy", "_ptds", hookCopy, opCopy | blocks | driver | byAddress},
	{"cuMemcpyAsync", "_ptsz", hookCopy, opCopy | driver | byAddress},
	{"cuMemcpyHtoD_v2", "_ptds", hookCopy, opCopy | blocks | driver | toDevice},
	{"cuMemcpyHtoDAsync_v2", "_ptsz", hookCopy, opCopy | stages | driver | toDevice},
	{"cuMemcpyDtoH_v2", "_ptds", hookCopy, opCopy | blocks | driver | toHost},
	{"cuMemcpyDtoHAsync_v2", "_ptsz", hookCopy, opCopy | driver | toHost},
	{"cuMemcpyDtoD_v2", "_ptds", hookCopy, opCopy | driver | onDevice},
	{"cuMemcpyDtoDAsync_v2", "_ptsz", hookCopy, opCopy | driver | onDevice},

	{"cudaStreamSynchronize", "_ptsz", hookSync, opSync | blocks},
	{"cudaDeviceSynchronize", "", hookSync, opSync | blocks},
	{"cudaThreadSynchronize", "", hookSync, opSync | blocks},
	{"cudaEventSynchronize", "", hookSync, opSync | blocks},
	{"cuStreamSynchronize", "_ptsz", hookSync, opSync | blocks | driver},
	{"cuCtxSynchronize", "", hookSync, opSync | blocks | driver},
	{"cuCtxSynchronize_v2", "", hookSync, opSync | blocks | driver},
	{"cuEventSynchronize", "", hookSync, opSync | blocks | driver},
}

// functionsOf are a hook's.
func functionsOf(hook int) map[string]uprobe.Point {
	points := map[string]uprobe.Point{}
	for _, f := range functions {
		if f.hook == hook {
			p := uprobe.Point{Code: f.code, Returns: f.code&(blocks|stages) != 0}
			if f.code&stages != 0 {
				p.Alone = f.code &^ stages
			}
			points[f.name], points[f.name+f.suffix] = p, p
		}
	}
	return points
}
