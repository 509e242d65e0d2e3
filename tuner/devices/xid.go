package devices

// ByProgram reports whether a program's own fault explains such an error, on a GPU that is well.
func ByProgram(xid uint32) bool {
	switch xid {
	case 13, 31, 43, 45, 69, 109:
		return true
	}
	return false
}

// XID says in a few words what an error means that NVIDIA's driver reported by this number, after
// NVIDIA's documentation of XIDs; "" for one that is not well known.
func XID(number uint32) string {
	switch number {
	case 13:
		return "a program's kernel did what it may not, most often a wrong address"
	case 31:
		return "a program used an address that is not its own"
	case 32:
		return "commands reached the GPU damaged, by its driver or the PCIe link"
	case 38:
		return "the driver's firmware failed"
	case 43:
		return "a program's work failed and was stopped; the GPU goes on"
	case 45:
		return "preemptive cleanup after an earlier error"
	case 48:
		return "its memory had an error that ECC cannot correct"
	case 61, 62:
		return "its microcontroller stopped or warned"
	case 63:
		return "row remapping recorded"
	case 64:
		return "row remapping could not be recorded"
	case 69:
		return "a program gave its compute engine a wrong command"
	case 74:
		return "an NVLink failed"
	case 79:
		return "fell off the bus"
	case 92:
		return "very many memory errors were corrected"
	case 94:
		return "a memory error was contained: it ended the program that it struck"
	case 95:
		return "a memory error was not contained: every program on it may be struck"
	case 109:
		return "context switch timeout"
	case 119:
		return "its system processor (GSP) did not answer the driver"
	case 120:
		return "its system processor (GSP) failed"
	case 140:
		return "its memory had an error, and the GPU has to be reset"
	}
	return ""
}
