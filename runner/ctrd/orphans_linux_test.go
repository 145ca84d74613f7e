package ctrd

import (
	"strings"
	"testing"
)

func TestOnlyTheCommandLineOfAShimIsOne(t *testing.T) {
	for name, c := range map[string]struct {
		line string
		want shimProcess
		ok   bool
	}{
		"a shim": {
			"/x/containerd-shim-monopod-v2 -namespace monopod -id abc -address /run/c.sock",
			shimProcess{"monopod", "abc", "/run/c.sock"},
			true,
		},
		"another order": {
			"containerd-shim-runc-v2 -address /a -id abc -debug -namespace k8s.io",
			shimProcess{"k8s.io", "abc", "/a"},
			true,
		},
		"no id":           {"containerd-shim-monopod-v2 -info", shimProcess{}, false},
		"another program": {"/bin/sh -namespace monopod -id abc", shimProcess{}, false},
		"a kernel thread": {"", shimProcess{}, false},
		"cut off":         {"containerd-shim-monopod-v2 -id", shimProcess{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := parseShim(strings.ReplaceAll(c.line, " ", "\x00") + "\x00")
			if ok != c.ok || ok && got != c.want {
				t.Errorf("got %+v, %t", got, ok)
			}
		})
	}
}
