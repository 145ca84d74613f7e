package service

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/internal/model"
	"monopod/manifests"
)

func TestAServiceLeadsOnlyToPodsOfItsSpace(t *testing.T) {
	s := svc("web", ip("10.96.0.10"))
	s.Spec.Ports[0].TargetPort = intstr.FromInt32(80)
	given, _, _ := Assign([]*corev1.Service{s}, Memory{}, dual())
	e := model.Endpoints{Services: given, Pods: []*corev1.Pod{pod("a", nil, "10.87.0.2"), pod("b", nil, "10.87.0.3"), pod("c", nil, "10.87.0.4")}}
	of := func(name, source string) map[manifests.Key]string {
		return map[manifests.Key]string{{Namespace: s.Namespace, Name: name}: source}
	}
	for _, c := range []struct {
		service string
		sharing map[string][]string
		want    string
	}{
		{"applied", nil, "tcp/10.96.0.10:80 -> 10.87.0.2:80"},
		{"fleet", nil, "tcp/10.96.0.10:80 -> 10.87.0.3:80"},
		{"other", nil, "tcp/10.96.0.10:80 ->"},
		{"applied", map[string][]string{"file": {"fleet"}}, "tcp/10.96.0.10:80 -> 10.87.0.2:80 10.87.0.3:80"},
	} {
		e.Origins = &model.Origins{Spaces: &manifests.Spaces{Local: []string{"file", "applied"}, Sharing: c.sharing}, Services: of("web", c.service), Pods: of("a", "file")}
		e.Origins.Pods[manifests.Key{Namespace: s.Namespace, Name: "b"}] = "fleet"
		if got := show(Plan(e, Memory{})); got != c.want {
			t.Errorf("%s: %s, want %s", c.service, got, c.want)
		}
	}
}
