package workload

import (
	"fmt"
	"strings"
	"testing"

	"monopod/manifests"
)

func TestFinalIsWhatAWorkloadComesTo(t *testing.T) {
	const head = "metadata: {name: web, namespace: x}\nspec:\n  selector: {matchLabels: {a: b}}\n  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i}]}\n"
	tests := []struct{ kind, more, want string }{
		{"Deployment", "  replicas: 3\n", "web-0 web-1 web-2"},
		{"Deployment", "  replicas: 0\n", ""},
		{"ReplicaSet", "", "web-0"},
		{"DaemonSet", "", "web-0"},
		{"StatefulSet", "  serviceName: s\n  replicas: 3\n", "web-0 web-1 web-2"},
		{"StatefulSet", "  serviceName: s\n  replicas: 3\n  updateStrategy: {rollingUpdate: {partition: 2}}\n", "web-2"},
		{"StatefulSet", "  serviceName: s\n  replicas: 2\n  ordinals: {start: 5}\n", "web-5 web-6"},
	}
	for _, tt := range tests {
		t.Run(tt.kind+tt.more, func(t *testing.T) {
			text := "apiVersion: apps/v1\nkind: " + tt.kind + "\n" + head + tt.more
			c, err := manifests.LoadAll("f", []byte(text), manifests.Options{Source: "file"})
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, p := range Final(c.Workloads[0]) {
				names = append(names, p.Object.Name)
				if p.Object.Namespace != "x" || p.Origin.File != "f" || len(p.Object.OwnerReferences) != 1 {
					t.Errorf("%+v", p.Object.ObjectMeta)
				}
			}
			if got := strings.Join(names, " "); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
	job := "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\nspec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: i}]}}}\n"
	c, err := manifests.LoadAll("f", []byte(job), manifests.Options{Source: "file"})
	if err != nil || Final(c.Workloads[0]) != nil {
		t.Error(fmt.Sprint(err), Final(c.Workloads[0]))
	}
}
