package workload

import (
	"fmt"
	"strings"
	"testing"

	"monopod/manifests/decode"
)

func TestFinal(t *testing.T) {
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
			c, err := decode.All("f", []byte(text), decode.Options{Source: "file"})
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
	c, err := decode.All("f", []byte(job), decode.Options{Source: "file"})
	if err != nil || Final(c.Workloads[0]) != nil {
		t.Error(fmt.Sprint(err), Final(c.Workloads[0]))
	}
}

// TestOnlyLabelsAndAnnotationsOfTemplateMetadataCount: with the uid of a dumped pod, all pods of a workload would be the same.
func TestOnlyLabelsAndAnnotationsOfTemplateMetadataCount(t *testing.T) {
	text := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":2,"selector":{"matchLabels":{"a":"b"}},"template":{
"metadata":{"name":"x","namespace":"y","uid":"u","generation":3,"creationTimestamp":"2023-01-02T03:04:05Z","labels":{"a":"b"},"annotations":{"c":"d"},
"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"n","uid":"n"}]},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`
	c, err := decode.All("f", []byte(text), decode.Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	pods := Final(c.Workloads[0])
	if len(pods) != 2 {
		t.Fatal(pods)
	}
	for _, p := range pods {
		m := p.Object.ObjectMeta
		if m.UID != "" || m.Generation != 0 || !m.CreationTimestamp.IsZero() || len(m.OwnerReferences) != 1 || m.OwnerReferences[0].Kind != "Deployment" {
			t.Errorf("%+v", m)
		}
		if m.Labels["a"] != "b" || m.Annotations["c"] != "d" || m.Namespace != "default" {
			t.Errorf("%+v", m)
		}
	}
}

func TestReplicationControllerRunsAsReplicaSet(t *testing.T) {
	text := "apiVersion: v1\nkind: ReplicationController\nmetadata: {name: web}\nspec:\n  replicas: 2\n  selector: {a: b}\n" +
		"  template:\n    metadata: {labels: {a: b}}\n    spec: {containers: [{name: c, image: i}]}\n"
	c, err := decode.All("f", []byte(text), decode.Options{Source: "file"})
	if err != nil {
		t.Fatal(err)
	}
	pods := Final(c.Workloads[0])
	if len(pods) != 2 || c.Workloads[0].ID().String() != "ReplicationController default/web" {
		t.Fatal(pods, c.Workloads[0])
	}
	if ref := pods[1].Object.OwnerReferences[0]; pods[1].Object.Name != "web-1" || ref.Kind != "ReplicationController" || ref.APIVersion != "v1" || ref.Name != "web" {
		t.Errorf("%s of %+v", pods[1].Object.Name, ref)
	}
}
