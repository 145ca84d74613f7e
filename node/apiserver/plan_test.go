package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"monopod/node/apiserver/mirror"
)

// there is the mirror of a pod as a server shows it.
func there(p *corev1.Pod, node types.UID) mirror.Mirror {
	l := localOf(p, "n1")
	return mirror.Mirror{UID: "m-" + p.UID, Hash: l.Hash, Owner: node, Digest: l.Digest, Conditions: p.Status.Conditions}
}

func TestWhatIsDoneAboutAMirror(t *testing.T) {
	now := time.Unix(1000, 0)
	web := running("web")
	key := mirror.Key{Namespace: "default", Name: "web-n1"}
	good := there(web, "node")
	change := func(f func(*mirror.Mirror)) map[mirror.Key]mirror.Mirror {
		m := good
		f(&m)
		return map[mirror.Key]mirror.Mirror{key: m}
	}
	mine := map[mirror.Key]mirror.Local{key: localOf(web, "n1")}
	for name, tt := range map[string]struct {
		pods    map[mirror.Key]mirror.Local
		mirrors map[mirror.Key]mirror.Mirror
		partial bool
		noNode  bool
		tries   map[mirror.Key]mirror.Try
		want    string
		next    time.Time
	}{
		"it is as it should be":                     {pods: mine, mirrors: change(func(*mirror.Mirror) {})},
		"there is none":                             {pods: mine, want: "create default/web-n1"},
		"there is no node":                          {pods: mine, noNode: true},
		"it is of another pod":                      {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Hash = "x" }), want: "delete default/web-n1"},
		"it is of another node":                     {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Owner = "x" }), want: "delete default/web-n1"},
		"somebody deletes it":                       {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Leaving = true }), want: "delete default/web-n1"},
		"its status is another one":                 {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Digest = "x" }), want: "status default/web-n1"},
		"a condition is missing":                    {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Conditions = nil }), want: "status default/web-n1"},
		"others have added a condition":             {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Conditions = append([]corev1.PodCondition{{Type: "x"}}, m.Conditions...) })},
		"a pod of that name is no mirror":           {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Other = true })},
		"the pod is gone":                           {mirrors: change(func(*mirror.Mirror) {}), want: "delete default/web-n1"},
		"it is not known whether the pod is gone":   {mirrors: change(func(*mirror.Mirror) {}), partial: true},
		"a pod of somebody else":                    {mirrors: change(func(m *mirror.Mirror) { m.Other = true })},
		"it was refused a moment ago":               {pods: mine, tries: map[mirror.Key]mirror.Try{key: {At: now.Add(time.Second)}}, next: now.Add(time.Second)},
		"it was refused a while ago":                {pods: mine, tries: map[mirror.Key]mirror.Try{key: {At: now}}, want: "create default/web-n1"},
		"the server does not keep all of a status":  {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Digest = "x" }), tries: map[mirror.Key]mirror.Try{key: accepted(mine[key], good, "x")}},
		"others have changed what was kept of it":   {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Digest = "y" }), tries: map[mirror.Key]mirror.Try{key: accepted(mine[key], good, "x")}, want: "status default/web-n1"},
		"its spec was edited":                       {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited = true }), want: "delete default/web-n1"},
		"its spec and its status were edited":       {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited, m.Digest = true, "x" }), want: "status default/web-n1"},
		"its spec was edited again":                 {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited = true }), tries: map[mirror.Key]mirror.Try{key: {Remade: now.Add(-time.Second)}}, next: now.Add(mirror.RemakeEvery - time.Second)},
		"it was edited, and stays for the moment":   {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited = true }), tries: map[mirror.Key]mirror.Try{key: {At: now.Add(time.Second)}}, next: now.Add(time.Second)},
		"a pod of somebody else was edited":         {pods: mine, mirrors: change(func(m *mirror.Mirror) { m.Edited, m.Other = true, true })},
		"it can have none, and there is an old one": {pods: map[mirror.Key]mirror.Local{key: {Pod: web, Refused: errors.New("no")}}, mirrors: change(func(*mirror.Mirror) {}), want: "delete default/web-n1"},
		"it can have none":                          {pods: map[mirror.Key]mirror.Local{key: {Pod: web, Refused: errors.New("no")}}},
	} {
		t.Run(name, func(t *testing.T) {
			v := mirror.View{Now: now, Node: "node", Pods: tt.pods, Complete: !tt.partial, Mirrors: tt.mirrors, Tries: tt.tries}
			if tt.noNode {
				v.Node = ""
			}
			got, next := mirror.Plan(v)
			var texts []string
			for _, a := range got {
				texts = append(texts, a.String())
				if a.Kind != mirror.CreateMirror && a.UID != good.UID {
					t.Errorf("it is about %q", a.UID)
				}
			}
			if strings.Join(texts, ", ") != tt.want || !next.Equal(tt.next) {
				t.Errorf("%v, next %v", texts, next)
			}
		})
	}
}

func accepted(l mirror.Local, m mirror.Mirror, digest string) mirror.Try {
	m.Digest = digest
	return mirror.Try{Sent: l.Sent(), Got: m.Got()}
}

// Whatever is there, carrying out plans ends in a plan of nothing, with a mirror of each pod and no others of ours.
func TestPlansConverge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := mirror.View{Now: time.Unix(1000, 0), Node: "node", Complete: true, Pods: map[mirror.Key]mirror.Local{}, Mirrors: map[mirror.Key]mirror.Mirror{}}
		others := map[mirror.Key]mirror.Mirror{}
		for i := range rapid.IntRange(0, 6).Draw(t, "names") {
			p := running(fmt.Sprint("p", i))
			key := mirror.Key{Namespace: p.Namespace, Name: mirror.Name(p.Name, "n1")}
			if rapid.Bool().Draw(t, "wanted") {
				v.Pods[key] = localOf(p, "n1")
			}
			if !rapid.Bool().Draw(t, "there") {
				continue
			}
			m := there(p, types.UID(rapid.SampledFrom([]string{"node", "old"}).Draw(t, "owner")))
			m.Leaving, m.Other, m.Edited = rapid.Bool().Draw(t, "leaving"), rapid.Bool().Draw(t, "other"), rapid.Bool().Draw(t, "edited")
			m.Digest = rapid.SampledFrom([]string{m.Digest, "x"}).Draw(t, "digest")
			m.Hash = rapid.SampledFrom([]string{m.Hash, "x"}).Draw(t, "hash")
			v.Mirrors[key] = m
			if m.Other {
				others[key] = m
			}
		}
		for range 4 {
			actions, _ := mirror.Plan(v)
			if again, _ := mirror.Plan(v); fmt.Sprint(again) != fmt.Sprint(actions) {
				t.Fatalf("%v, then %v", actions, again)
			}
			for _, a := range actions {
				local := v.Pods[a.Key]
				switch a.Kind {
				case mirror.DeleteMirror:
					delete(v.Mirrors, a.Key)
				default:
					m := there(local.Pod, "node")
					m.Edited = v.Mirrors[a.Key].Edited
					v.Mirrors[a.Key] = m
				}
			}
		}
		if actions, _ := mirror.Plan(v); len(actions) > 0 {
			t.Fatalf("it goes on with %v", actions)
		}
		for key, m := range v.Mirrors {
			if _, wanted := v.Pods[key]; !wanted && !m.Other {
				t.Fatalf("%s stays although no pod wants it: %+v", key, m)
			}
		}
		for key, m := range others {
			if got, ok := v.Mirrors[key]; !ok || !reflect.DeepEqual(got, m) {
				t.Fatalf("%s, which is not ours, was changed to %+v", key, got)
			}
		}
		for key := range maps.Keys(v.Pods) {
			if m, ok := v.Mirrors[key]; !ok || !m.Other && !mirror.SameStatus(v.Pods[key], m) {
				t.Fatalf("%s: %+v", key, m)
			}
		}
	})
}

func TestNamesOfMirrors(t *testing.T) {
	if got := mirror.Name("web", "Node-1"); got != "web-node-1" {
		t.Error(got)
	}
	if got, ok := mirror.LocalName("web-node-1", "Node-1"); !ok || got != "web" {
		t.Error(got, ok)
	}
	for _, name := range []string{"web", "-node-1", "node-1"} {
		if got, ok := mirror.LocalName(name, "node-1"); ok {
			t.Error(name, got)
		}
	}
	if _, err := mirror.For(running(strings.Repeat("x", 252)), "n1"); err == nil || !strings.Contains(err.Error(), "longer than the 253 characters") {
		t.Error(err)
	}
}

func TestAMirrorChangesWithItsPodAndNotWithItsStatus(t *testing.T) {
	web := localOf(running("web"), "n1")
	status := localOf(with(running("web"), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed; p.Annotations[mirror.AnnotationSeen] = "now" }), "n1")
	spec := localOf(with(running("web"), func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" }), "n1")
	if web.Hash != status.Hash || web.Digest == status.Digest || web.Hash == spec.Hash {
		t.Errorf("%+v %+v %+v", web, status, spec)
	}
	// An edit does not change the uid here; tools that wait for it look at config.hash.
	before, err1 := mirror.For(with(running("web"), func(p *corev1.Pod) { p.Annotations[mirror.AnnotationHash] = string(p.UID) }), "n1")
	after, err2 := mirror.For(with(spec.Pod, func(p *corev1.Pod) { p.Annotations[mirror.AnnotationHash] = string(p.UID) }), "n1")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if a, b := before.Annotations, after.Annotations; a[mirror.AnnotationHash] == b[mirror.AnnotationHash] || a[mirror.AnnotationHash] == "" || a[corev1.MirrorPodAnnotationKey] != b[corev1.MirrorPodAnnotationKey] {
		t.Errorf("%v %v", a, b)
	}
}

func TestWhatIsDoneAboutTheNode(t *testing.T) {
	now := time.Unix(5000, 0)
	cfg := config(t, "", newBoard())
	facts := cfg.Facts()
	want := wantedNode(&cfg, &facts)
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
	} {
		n := want.DeepCopy()
		change(n)
		if s := planNode(later, n, have, false); s.Status == nil || s.Object != nil {
			t.Errorf("%s: %+v", name, s)
		}
	}
	have.Labels = map[string]string{"site": "other", "foreign": "kept"}
	labels := planNode(later, want, have, false).Object["metadata"].(map[string]any)["labels"].(map[string]string)
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
	closed, have := wantedNode(&cfg, &facts), &corev1.Node{}
	if made := planNode(time.Unix(0, 0), closed, nil, false).Create; !made.Spec.Unschedulable || made.Annotations[annotationCordoned] == "" {
		t.Errorf("%+v", made)
	}
	facts.Unschedulable = false
	open := wantedNode(&cfg, &facts)
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
	if got := wantedNode(&cfg, &facts).Status.Images; len(got) != maxImages || got[0].SizeBytes != 99 || got[49].SizeBytes != 50 {
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

func TestDigestsLeaveOutWhatServersSet(t *testing.T) {
	a, b := running("a").Status, running("a").Status
	b.QOSClass, b.Conditions = "", nil
	b.StartTime = &metav1.Time{Time: b.StartTime.UTC()}
	if mirror.Digest(&a) != mirror.Digest(&b) {
		t.Error("they differ")
	}
}
