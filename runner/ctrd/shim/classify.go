package shim

import "strings"

// noise: the v1 OOM watcher's epoll loop spins on its closed descriptor while the shim ends; events cannot be
// delivered while the agent is away, which is what the exit record is for.
func noise(msg string) bool {
	return strings.HasPrefix(msg, "cgroups: epoll wait") || msg == "post event" || msg == "forward event"
}
