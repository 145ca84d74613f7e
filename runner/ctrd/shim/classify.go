package shim

import "strings"

// noise reports whether a log message is expected and harmless: the v1 OOM watcher polls its closed descriptor while the shim exits; events
// cannot be delivered while the agent is down, which is why there are exit records.
func noise(msg string) bool {
	return strings.HasPrefix(msg, "cgroups: epoll wait") || msg == "post event" || msg == "forward event"
}
