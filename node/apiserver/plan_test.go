package apiserver

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatIsDoneAboutTheNode(t *testing.T) {
	now := time.Unix(5000, 0)
	cfg := config(t, "", newBoard())
	facts := cfg.Facts()
	want := NewNode(cfg.NodeName, cfg.Labels, cfg.Taints, &facts)
	made := planNode(now, want, nil, false).Create
	if made == nil || made.Status.Conditions[0].LastTransitionTime.Unix() != 5000 || want.Status.Conditions[0].LastTransitionTime.Unix() == 5000 {
		t.Fatalf("%+v", made)
	}
	have := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "u", Labels: made.Labels}, Status: made.Status}
	later := now.Add(time.Hour)
	if s := planNode(later, want, have, false); s.Create != nil || s.Object != nil || s.Status != nil {
		t.Errorf("it is as it should be: %+v", s)
	}
	sent := planNode(later, want, have, true).Status["status"].(map[string]any)["conditions"].([]corev1.NodeCondition)[0]
	if sent.LastHeartbeatTime.Time != later || sent.LastTransitionTime.Time != now {
		t.Errorf("%+v", sent)
	}
	for name, change := range map[string]func(*corev1.Node){
		"condition": func(n *corev1.Node) { n.Status.Conditions[0].Message = "x" },
		"new one": func(n *corev1.Node) {
			n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "X"})
		},
		"address":  func(n *corev1.Node) { n.Status.Addresses[0].Address = "192.0.2.1" },
		"capacity": func(n *corev1.Node) { n.Status.Capacity = corev1.ResourceList{"cpu": resource.MustParse("3")} },
		"info":     func(n *corev1.Node) { n.Status.NodeInfo.BootID = "x" },
		"images":   func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}} },
		"port":     func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 1 },
		"features": func(n *corev1.Node) { n.Status.DeclaredFeatures = n.Status.DeclaredFeatures[1:] },
	} {
		n := want.DeepCopy()
		change(n)
		if s := planNode(later, n, have, false); s.Status == nil || s.Object != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	if features, _ := planNode(later, want, have, true).Status["status"].(map[string]any)["declaredFeatures"].([]string); !slices.Contains(features, "InPlacePodLevelResourcesVerticalScaling") {
		t.Errorf("an API server would refuse to resize spec.resources: %v", features)
	}
	have.Status.DeclaredFeatures = nil // a server that has no such field
	if s := planNode(later, want, have, false); s.Status != nil {
		t.Errorf("it is sent again and again: %v", s.Status)
	}
	have.Labels = map[string]string{"site": "other", "foreign": "kept"}
	labels := planNode(later, want, have, false).Object["metadata"].(map[string]any)["labels"].(map[string]any)
	if _, foreign := labels["foreign"]; foreign || labels["site"] != "lab" || labels[corev1.LabelHostname] != "n1" {
		t.Error(labels)
	}
}

func TestPodsThatAreThereThemselvesKeepTheirNames(t *testing.T) {
	a := New(config(t, "", newBoard()))
	a.store.uids["bound"] = true
	if got := a.ShownName("web", "bound") + " " + a.ShownName("web", "ours"); got != "web web-n1" {
		t.Error(got)
	}
}

func TestOnlyWhoMadeANodeUnschedulableMakesItSchedulable(t *testing.T) {
	cfg := config(t, "", newBoard())
	facts := cfg.Facts()
	facts.Unschedulable = true
	closed, have := NewNode(cfg.NodeName, cfg.Labels, cfg.Taints, &facts), &corev1.Node{}
	if made := planNode(time.Unix(0, 0), closed, nil, false).Create; !made.Spec.Unschedulable || made.Annotations[annotationCordoned] == "" {
		t.Errorf("%+v", made)
	}
	facts.Unschedulable = false
	open := NewNode(cfg.NodeName, cfg.Labels, cfg.Taints, &facts)
	for _, row := range []struct {
		name        string
		want        *corev1.Node
		there, ours bool
		patch       string
	}{
		{"nothing", open, false, false, ""},
		{"somebody else has closed it", open, true, false, ""},
		{"ours to open", open, true, true, `{"metadata":{"annotations":{"monopod.dev/cordoned":null},"uid":""},"spec":{"unschedulable":null}}`},
		{"opened by somebody else", open, false, true, `{"metadata":{"annotations":{"monopod.dev/cordoned":null},"uid":""},"spec":{"unschedulable":null}}`},
		{"to be closed", closed, false, false, `{"metadata":{"annotations":{"monopod.dev/cordoned":"true"},"uid":""},"spec":{"unschedulable":true}}`},
		{"closed by somebody else", closed, true, false, `{"metadata":{"annotations":{"monopod.dev/cordoned":"true"},"uid":""},"spec":{"unschedulable":true}}`},
		{"closed, and opened by somebody else", closed, false, true, `{"metadata":{"annotations":{"monopod.dev/cordoned":"true"},"uid":""},"spec":{"unschedulable":true}}`},
		{"closed", closed, true, true, ""},
	} {
		have.Labels, have.Annotations, have.Spec.Unschedulable = row.want.Labels, nil, row.there
		if row.ours {
			have.Annotations = map[string]string{annotationCordoned: "true"}
		}
		got := ""
		if patch := objectPatch(row.want, have); patch != nil {
			b, err := json.Marshal(patch)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		if got != row.patch {
			t.Errorf("%s: %s, want %s", row.name, got, row.patch)
		}
	}
}

func TestTheLargestImagesAreShown(t *testing.T) {
	cfg := config(t, "", newBoard())
	facts := cfg.Facts()
	for i := range 100 {
		facts.Images = append(facts.Images, corev1.ContainerImage{Names: []string{fmt.Sprint(i)}, SizeBytes: int64(i)})
	}
	if got := NewNode(cfg.NodeName, cfg.Labels, cfg.Taints, &facts).Status.Images; len(got) != maxImages || got[0].SizeBytes != 99 || got[49].SizeBytes != 50 {
		t.Errorf("%+v", got)
	}
}

func TestTokensComeBack(t *testing.T) {
	b, now := &bucket{}, time.Unix(0, 0)
	for i := range 3 {
		if _, ok := b.take(now, 3, time.Minute); !ok {
			t.Error(i)
		}
	}
	if wait, ok := b.take(now, 3, time.Minute); ok || wait != time.Minute {
		t.Error(wait, ok)
	}
	if _, ok := b.take(now.Add(61*time.Second), 3, time.Minute); !ok {
		t.Error("none after a minute")
	}
	if _, ok := b.take(now.Add(62*time.Second), 3, time.Minute); ok {
		t.Error("two after a minute")
	}
}
