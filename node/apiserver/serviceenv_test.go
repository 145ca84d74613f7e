package apiserver

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"monopod/node/apiserver/serviceenv"
)

func env(c *corev1.Container) string {
	var all []string
	for _, e := range c.Env {
		all = append(all, e.Name+"="+e.Value)
	}
	return strings.Join(all, " ")
}

func TestPodsAreToldWhereTheAPIServerIs(t *testing.T) {
	pod := func(change func(*corev1.Pod)) *corev1.Pod {
		return with(bound("a", "yes"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "$(KUBERNETES_SERVICE_HOST)"}}
			p.Spec.InitContainers = []corev1.Container{{Name: "first"}}
			change(p)
		})
	}
	const given = "KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=6443 KUBERNETES_SERVICE_PORT_HTTPS=6443 KUBERNETES_PORT=tcp://10.0.0.1:6443 " +
		"KUBERNETES_PORT_6443_TCP=tcp://10.0.0.1:6443 KUBERNETES_PORT_6443_TCP_PROTO=tcp KUBERNETES_PORT_6443_TCP_PORT=6443 KUBERNETES_PORT_6443_TCP_ADDR=10.0.0.1"
	vars := serviceenv.Variables("10.0.0.1", "6443")
	settings := map[object]*fetched{
		{"configmaps", "default", "settings"}: {doc: &corev1.ConfigMap{Data: map[string]string{"SERVICE_HOST": "x"}}},
		{"secrets", "default", "db"}:          {doc: &corev1.Secret{Data: map[string][]byte{"KUBERNETES_SERVICE_PORT": nil}}},
	}
	for name, tt := range map[string]struct {
		change func(*corev1.Pod)
		local  *corev1.Pod
		want   string
	}{
		"first of all":         {change: func(*corev1.Pod) {}, want: given + " A=$(KUBERNETES_SERVICE_HOST)"},
		"without ServiceLinks": {change: func(p *corev1.Pod) { p.Spec.EnableServiceLinks = new(false) }, want: given + " A=$(KUBERNETES_SERVICE_HOST)"},
		"its own": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "mine"}}
			},
			want: strings.Replace(given, "KUBERNETES_SERVICE_HOST=10.0.0.1 ", "", 1) + " KUBERNETES_SERVICE_HOST=mine",
		},
		"its own, by envFrom": {
			change: func(p *corev1.Pod) {
				p.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{
					{Prefix: "KUBERNETES_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
					{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "db"}}},
					{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "missing"}}},
				}
			},
			want: strings.NewReplacer("KUBERNETES_SERVICE_HOST=10.0.0.1 ", "", "KUBERNETES_SERVICE_PORT=6443 ", "").Replace(given) + " A=$(KUBERNETES_SERVICE_HOST)",
		},
		// Another agent, or another address of the server, must not recreate running pods.
		"it was begun without them": {change: func(*corev1.Pod) {}, local: running("a"), want: "A=$(KUBERNETES_SERVICE_HOST)"},
		"it was begun with others": {change: func(*corev1.Pod) {}, local: with(running("a"), func(p *corev1.Pod) {
			p.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "10.9.9.9"}, {Name: "A", Value: "b"}}
		}), want: "KUBERNETES_SERVICE_HOST=10.9.9.9 A=$(KUBERNETES_SERVICE_HOST)"},
	} {
		doc, _, _ := boundDocument(pod(tt.change))
		doc.Spec.Containers[0].Name = "main"
		withServiceVariables(doc, tt.local, vars, settings)
		if got := env(&doc.Spec.Containers[0]); got != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tt.want)
		}
		if got := env(&doc.Spec.InitContainers[0]); tt.local == nil && got != given {
			t.Errorf("%s: the init container has %s", name, got)
		}
	}
}
