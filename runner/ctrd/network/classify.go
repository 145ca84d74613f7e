package network

import "strings"

// alreadyGone recognizes foreign plugins that complain about things which were removed before, by the words
// containerd looks for. A tool that is missing on the host is another matter.
func alreadyGone(err error, netns string) bool {
	text := err.Error()
	if strings.Contains(text, "executable file not found") {
		return false
	}
	return (netns == "" && strings.Contains(text, "no such file or directory")) || strings.Contains(text, "not found")
}
