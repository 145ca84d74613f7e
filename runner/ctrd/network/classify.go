package network

import "strings"

// alreadyGone reports whether a plugin failed to remove something that does not exist, by the same words as containerd. A missing program on
// the host is not such an error.
func alreadyGone(err error, netns string) bool {
	text := err.Error()
	if strings.Contains(text, "executable file not found") {
		return false
	}
	return (netns == "" && strings.Contains(text, "no such file or directory")) || strings.Contains(text, "not found")
}
