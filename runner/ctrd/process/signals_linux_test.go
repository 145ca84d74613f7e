package process

import "testing"

func TestOnlyACgroupWithTheIDIsTheContainers(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want bool
	}{
		"v2":               {"0::/monopod/poduid/abc\n", true},
		"v1":               {"3:memory:/monopod/poduid/abc\n2:cpu:/\n", true},
		"below":            {"0::/monopod/poduid/abc/init\n", true},
		"another":          {"0::/monopod/poduid/abcd\n", false},
		"the root":         {"0::/\n", false},
		"nothing":          {"", false},
		"name in v1 field": {"1:name=abc:/x\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := inCgroup(c.in, "abc"); got != c.want {
				t.Errorf("got %v", got)
			}
		})
	}
}
