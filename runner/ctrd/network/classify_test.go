package network

import (
	"errors"
	"testing"
)

func TestErrorsOfPluginsThatFindNothingToRemove(t *testing.T) {
	for _, tt := range []struct {
		text, netns string
		want        bool
	}{
		{"Link not found", "/run/netns/a", true},
		{`failed to Statfs "/run/netns/a": no such file or directory`, "/run/netns/a", false},
		{`failed to Statfs "/run/netns/a": no such file or directory`, "", true},
		{`exec: "iptables": executable file not found in $PATH`, "", false},
		{"failed to find plugin \"bridge\" in path [/opt/cni/bin]", "", false},
		{"permission denied", "", false},
	} {
		if got := alreadyGone(errors.New(tt.text), tt.netns); got != tt.want {
			t.Errorf("%q in %q: %v", tt.text, tt.netns, got)
		}
	}
}
