// Package rate counts the steps that jobs count themselves: lines of their logs
// that match the expression of the label trimtab.rate.log, and datagrams sent to
// a socket. docs/rate.md is for their owners.
//
// Both are hostile: a log is read for a bounded share of bytes and time, then
// rested from; a datagram belongs to the container of the process that the kernel
// says sent it, whatever it says. What a container cannot be read for costs that
// container's rate alone, and the log says why.
package rate
