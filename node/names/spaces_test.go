package names

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/internal/model"
	"monopod/manifests"
)

// TestNamesOfOneSpaceHaveNoPodsOfAnother: pods of fleet joined the Services of applied by their labels, and its records by their subdomains.
func TestNamesOfOneSpaceHaveNoPodsOfAnother(t *testing.T) {
	in := func(hostname, subdomain, label string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Hostname, p.Spec.Subdomain, p.Labels = hostname, subdomain, map[string]string{"app": label}
		}
	}
	pods := []*corev1.Pod{
		pod("db-0", in("", "db", "db"), "10.0.0.2"), pod("z-fleet", in("db-0", "db", "db"), "10.0.0.3"), pod("a-fleet", in("x", "free", "web"), "10.0.0.4"),
		pod("y", in("x", "free", "y"), "10.0.0.5"), pod("b-fleet", in("db-1", "db", "web"), "10.0.0.6"), pod("db-2.db", in("", "", "z"), "10.0.0.7"),
		pod("dotted.name", in("", "", "z"), "10.0.0.8"), pod("c-fleet", in("dotted", "name", "z"), "10.0.0.9"), pod("web", in("", "", "z"), "10.0.0.10"),
	}
	services := []*corev1.Service{service("db", nil), service("web", nil), service("free-web", func(s *corev1.ServiceSpec) { s.Selector = map[string]string{"app": "web"} })}
	sources := map[string]string{"db-0": "file", "y": "applied", "dotted.name": "file", "web": "file"}
	origins := &model.Origins{
		Spaces: &manifests.Spaces{Local: []string{"file", "applied"}}, Pods: map[manifests.Key]string{},
		Services: map[manifests.Key]string{{Namespace: "default", Name: "db"}: "applied", {Namespace: "default", Name: "web"}: "fleet", {Namespace: "default", Name: "free-web"}: "fleet"},
	}
	for _, p := range pods {
		origins.Pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}] = "fleet"
		if s := sources[p.Name]; s != "" {
			origins.Pods[manifests.Key{Namespace: p.Namespace, Name: p.Name}] = s
		}
	}
	for name, want := range map[string]string{
		"db":          "Success 10.0.0.2",
		"db-0.db":     "Success 10.0.0.2",
		"db-1.db":     "NameError",
		"db-2.db":     "NameError",
		"10-0-0-3.db": "NameError",
		"x.free":      "Success 10.0.0.5",
		"dotted.name": "Success 10.0.0.8",
		"web":         "Success 10.0.0.10",
		"free-web":    "Success 10.0.0.4 10.0.0.6",
		"a-fleet":     "Success 10.0.0.4",
	} {
		z := NewZone("cluster.local", model.Endpoints{Pods: pods, Services: services, Origins: origins})
		if got := asked(t, z, name+".default.svc.cluster.local."); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	origins.Spaces.Sharing = map[string][]string{"applied": {"fleet/default"}}
	z := NewZone("cluster.local", model.Endpoints{Pods: pods, Services: services, Origins: origins})
	if got := asked(t, z, "db.default.svc.cluster.local."); got != "Success 10.0.0.2 10.0.0.3" {
		t.Errorf("shared: %s", got)
	}
}
