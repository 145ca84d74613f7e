package services

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
)

func TestTheServiceOfTheAPIExistsOncePodsUseIt(t *testing.T) {
	t.Parallel()
	behind := netip.MustParseAddrPort("10.87.0.1:6443")
	for name, c := range map[string]struct {
		subnet  string
		behind  []netip.AddrPort
		written bool
		want    bool
	}{
		"nobody uses it": {subnet: both},
		"a pod uses it":  {subnet: both, behind: []netip.AddrPort{behind}, want: true},
		"switched off":   {subnet: "off", behind: []netip.AddrPort{behind}},
		"written":        {subnet: both, behind: []netip.AddrPort{behind}, written: true},
	} {
		f := newFake()
		f.pods = []*corev1.Pod{web("10.87.0.2")}
		if c.written {
			own := front()
			own.Name = "kubernetes"
			f.services = []*corev1.Service{own}
		}
		n := network(t.TempDir(), "10.87.0.0/16", c.subnet, f)
		n.cfg.API = func() []netip.AddrPort { return c.behind }
		n.Prepare(t.Context())
		if _, err := n.update(t.Context(), model.Endpoints{Pods: f.pods, Services: f.services}); err != nil {
			t.Fatal(err)
		}
		at := n.APIAddress()
		if at.IsValid() != c.want || c.want && (at.Port() != 443 || !netip.MustParsePrefix("10.96.0.0/16").Contains(at.Addr())) {
			t.Errorf("%s: %s", name, at)
		}
		led := false
		for _, p := range f.table.Ports {
			led = led || len(p.To) == 1 && p.To[0] == behind && p.Addr == at.Addr() && p.Port == 443
		}
		if led != c.want {
			t.Errorf("%s: %+v", name, f.table)
		}
		if _, told := n.Variables("file", "default")["KUBERNETES_SERVICE_HOST"]; told != c.written {
			t.Errorf("%s: all pods are told of it: %t", name, told)
		}
	}
}
