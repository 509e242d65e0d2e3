// Package network reads what containers' TCP sockets moved, and what the host's
// links can give. Sockets that were connected long before are found: a BPF
// iterator walks the open files of the host, in whatever network namespace the
// sockets are, so that no namespace is entered and CAP_BPF with CAP_PERFMON will do.
//
// What is not seen: UDP by socket (it is in Links), MPTCP's subflows, sockets in no
// descriptor table, and a shaping queue inside a container's namespace: one at
// the host's end of its veth is.
//
// The trap: the walk costs what the host has of open files, not what the
// containers have, so it is spaced out to a bounded share of one CPU, and
// Network.AtNs tells when it was.
package network
