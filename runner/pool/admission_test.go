package pool_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/plan"
	"monopod/runner/podstatus"
	"monopod/runner/runtimetest"
)

// requesting returns a pod with one container that requests cpu and memory, and a priority unless that is empty.
func requesting(name, cpu, memory, priority string) *manifests.Pod {
	c := testContainer("a", runtimetest.ScriptServe)
	c.Resources.Requests = corev1.ResourceList{}
	for r, q := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
		if q != "" {
			c.Resources.Requests[r] = resource.MustParse(q)
		}
	}
	p := testPod(name, c)
	if priority != "" {
		n := int32(0)
		if _, err := fmt.Sscan(priority, &n); err != nil {
			panic(err)
		}
		p.Object.Spec.Priority = &n
	}
	return p
}

func room(cpu, memory string) admit.Requests {
	return admit.RequestsOf(corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)})
}

func holdings(pods ...*manifests.Pod) map[manifests.Key]admit.Holding {
	all := map[manifests.Key]admit.Holding{}
	for _, p := range pods {
		all[p.Key()] = admit.Holding{Seen: true, Pod: p, Priority: manifests.PriorityOf(p)}
	}
	return all
}

func changed(h map[manifests.Key]admit.Holding, name string, change func(*admit.Holding)) map[manifests.Key]admit.Holding {
	v := h[key(name)]
	change(&v)
	h[key(name)] = v
	return h
}

func TestWhatDoesNotFitWaitsWithTheExactShortage(t *testing.T) {
	type pods = []*manifests.Pod
	a, b := requesting("a", "1", "1Gi", ""), requesting("b", "2", "1Gi", "")
	initial := requesting("i", "100m", "", "")
	initial.Object.Spec.InitContainers = []corev1.Container{{Name: "first", Resources: requesting("x", "3500m", "", "").Object.Spec.Containers[0].Resources}}
	heavy := requesting("h", "1", "", "")
	heavy.Object.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2500m")}
	chooses := requesting("n", "", "", "")
	chooses.Object.Spec.NodeSelector = map[string]string{"disk": "ssd", "zone": "a"}
	for _, tt := range []struct {
		name    string
		desired pods
		known   map[manifests.Key]admit.Holding
		change  func(*admit.Input)
		want    string // "name:Reason: message" by name, then "victim<-by"
	}{
		{"all fit", pods{a, b}, nil, nil, ""},
		{
			"the second one does not",
			pods{a, b, requesting("c", "1500m", "", "")},
			nil, nil,
			"c:OutOfcpu: Node didn't have enough resource: cpu, requested: 1500, used: 3000, capacity: 4000",
		},
		{
			"a smaller one that comes later does",
			pods{b, requesting("c", "3", "", ""), a},
			nil, nil,
			"c:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000",
		},
		{
			"two shortages",
			pods{b, requesting("c", "3", "4Gi", "")},
			nil, nil,
			"c:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000; Node didn't have enough resource: memory, requested: 4294967296, used: 1073741824, capacity: 4294967296",
		},
		{
			"init containers count by what they need most",
			pods{a, initial},
			nil, nil,
			"i:OutOfcpu: Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000",
		},
		{
			"overhead counts",
			pods{a, heavy},
			nil, nil,
			"h:OutOfcpu: Node didn't have enough resource: cpu, requested: 3500, used: 1000, capacity: 4000",
		},
		{"what runs comes first", pods{requesting("c", "3", "", ""), b}, holdings(b), nil, "c:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000"},
		{"what runs is never refused", pods{requesting("c", "9", "99Gi", "")}, holdings(requesting("c", "9", "99Gi", "")), nil, ""},
		{"an edit that asks for less is never refused", pods{requesting("c", "8", "99Gi", "")}, holdings(requesting("c", "9", "99Gi", "")), nil, ""},
		{
			"an edit that asks for more may be",
			pods{requesting("c", "4", "", ""), a},
			holdings(requesting("c", "2", "", ""), a), nil,
			"c:OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 1000, capacity: 4000",
		},
		{
			"what has ended takes nothing",
			pods{b, requesting("c", "4", "", "")},
			changed(holdings(b), "b", func(h *admit.Holding) { h.Idle = true }), func(a *admit.Input) { a.Desired = a.Desired[1:] }, "",
		},
		{
			"what is being removed will leave room",
			pods{requesting("c", "4", "", "")},
			changed(holdings(b), "b", func(h *admit.Holding) { h.Leaving = true }), nil,
			"c:OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000; it has room when those are gone that are being stopped",
		},
		{
			"and nobody else takes that",
			pods{requesting("c", "4", "", ""), a},
			changed(holdings(b), "b", func(h *admit.Holding) { h.Leaving = true }), nil,
			"a:OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 6000, capacity: 4000 c:OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000; it has room when those are gone that are being stopped",
		},
		{"the higher priority comes first", pods{requesting("l", "3", "", "1"), requesting("m", "3", "", "2")}, nil, nil, "l:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"},
		{
			"and makes others stop",
			pods{requesting("m", "3", "", "2")},
			holdings(requesting("l", "3", "", "1")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000; stopped to make room: default/l l<-m",
		},
		{"not those of which nobody has said it", pods{requesting("m", "3", "", "2")}, holdings(requesting("l", "3", "", "")), nil, "m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"},
		{
			"but a critical one does",
			pods{requesting("m", "3", "", "2000000000")},
			holdings(requesting("l", "3", "", "")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000; stopped to make room: default/l l<-m",
		},
		{
			"not those that are protected",
			pods{requesting("m", "3", "", "2000000000")},
			holdings(edited(requesting("l", "3", "", ""), func(p *corev1.Pod) { p.Annotations = map[string]string{"monopod.dev/protected": "true"} })), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000",
		},
		{
			"not for one that says so",
			pods{edited(requesting("m", "3", "", "9"), func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) })},
			holdings(requesting("l", "3", "", "1")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000",
		},
		{
			"not if it would not help",
			pods{requesting("m", "5", "", "9")},
			holdings(requesting("l", "3", "", "1")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 5000, used: 3000, capacity: 4000",
		},
		{
			"as few as possible",
			pods{requesting("m", "2", "", "9")},
			holdings(requesting("x", "1", "", "1"), requesting("y", "2", "", "1"), requesting("z", "1", "", "1")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 4000, capacity: 4000; stopped to make room: default/y y<-m",
		},
		{
			"labels",
			pods{chooses},
			nil, func(a *admit.Input) { a.Labels = map[string]string{"disk": "hdd", "zone": "a"} },
			"n:NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: nodeLabels has no disk=ssd",
		},
		{"labels that fit", pods{chooses}, nil, func(a *admit.Input) { a.Labels = map[string]string{"disk": "ssd", "zone": "a", "more": ""} }, ""},
		{"what runs does not choose again", pods{chooses}, holdings(chooses), func(a *admit.Input) { a.Labels = map[string]string{} }, ""},
		{"nobody knows yet", pods{a}, nil, func(a *admit.Input) { a.Blind = true }, "a:Starting: what other pods use is not known yet"},
		{"who runs need not wait for that", pods{a}, holdings(a), func(a *admit.Input) { a.Blind = true }, ""},
		{
			"nobody is stopped while what others use is not known",
			pods{requesting("m", "3", "", "2")},
			holdings(requesting("l", "3", "", "1")), func(a *admit.Input) { a.Blind = true },
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000",
		},
		{
			"nor for one that may run already, whose room nobody takes",
			pods{requesting("m", "3", "", "2"), requesting("n", "1", "", "1")},
			changed(holdings(requesting("l", "3", "", "1")), "m", func(h *admit.Holding) { h.Seen = false }), nil,
			"m:Starting: whether it runs already is not known yet n:OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 6000, capacity: 4000",
		},
		{
			"a place by priority",
			pods{requesting("m", "", "", "9")},
			holdings(requesting("l", "", "", "1")), func(a *admit.Input) { a.MaxPods = 1 },
			"m:OutOfpods: there are maxPods (1) pods already; stopped to make room: default/l l<-m",
		},
	} {
		in := admit.Input{Desired: tt.desired, Known: map[manifests.Key]admit.Holding{}, Listed: true, Room: room("4", "4Gi"), Node: "node"}
		for _, p := range tt.desired {
			in.Known[p.Key()] = admit.Holding{Seen: true}
		}
		maps.Copy(in.Known, tt.known)
		if tt.change != nil {
			tt.change(&in)
		}
		d := admit.Decide(in)
		var got []string
		for k, h := range d.Held {
			got = append(got, k.Name+":"+h.Reason+": "+h.Message)
		}
		for k, by := range d.Preempted {
			got = append(got, k.Name+"<-"+by.Name)
		}
		slices.SortFunc(got, func(a, b string) int {
			x, y := strings.Contains(a, "<-"), strings.Contains(b, "<-")
			if x != y {
				return map[bool]int{true: 1, false: -1}[x]
			}
			return strings.Compare(a, b)
		})
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s:\n%s\nwant\n%s", tt.name, strings.Join(got, " "), tt.want)
		}
	}
}

func TestNodeAffinity(t *testing.T) {
	expr := func(key string, op corev1.NodeSelectorOperator, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op, Values: values}
	}
	term := func(all ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: all}
	}
	for _, tt := range []struct {
		name  string
		terms []corev1.NodeSelectorTerm
		fits  bool
	}{
		{"in", []corev1.NodeSelectorTerm{term(expr("disk", "In", "hdd", "ssd"))}, true},
		{"not in", []corev1.NodeSelectorTerm{term(expr("disk", "NotIn", "ssd"))}, false},
		{"exists", []corev1.NodeSelectorTerm{term(expr("disk", "Exists"), expr("cores", "Gt", "3"))}, true},
		{"less", []corev1.NodeSelectorTerm{term(expr("cores", "Lt", "4"))}, false},
		{"does not exist", []corev1.NodeSelectorTerm{term(expr("gpu", "DoesNotExist"))}, true},
		{"one of two", []corev1.NodeSelectorTerm{term(expr("gpu", "Exists")), term(expr("disk", "Exists"))}, true},
		{"none of none", []corev1.NodeSelectorTerm{term()}, false},
		{"the name", []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{expr("metadata.name", "In", "node")}}}, true},
		{"another name", []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{expr("metadata.name", "In", "other")}}}, false},
	} {
		p := edited(requesting("p", "", "", ""), func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: tt.terms}}}
		})
		d := admit.Decide(admit.Input{
			Desired: []*manifests.Pod{p}, Known: map[manifests.Key]admit.Holding{p.Key(): {Seen: true}}, Listed: true,
			Node: "node", Labels: map[string]string{"disk": "ssd", "cores": "4"},
		})
		if h, held := d.Held[p.Key()]; held == tt.fits || held && !strings.HasSuffix(h.Message, "nodeLabels meets no term of its node affinity") {
			t.Errorf("%s: %+v", tt.name, h)
		}
	}
}

// TestAPodForAnotherPlatformNeverStarts: no configuration is needed to know what this machine is.
func TestAPodForAnotherPlatformNeverStarts(t *testing.T) {
	const failed = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: "
	in := func(key string, values ...string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}}}
	}
	affinity := func(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
	}
	noWindows := corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
		{Key: "kubernetes.io/os", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"windows"}}, {Key: "disk", Operator: corev1.NodeSelectorOpExists},
	}}
	for _, tt := range []struct {
		name   string
		change func(*corev1.PodSpec)
		labels map[string]string
		runs   bool
		want   string
	}{
		{"no wish", func(*corev1.PodSpec) {}, nil, false, ""},
		{"this platform", func(s *corev1.PodSpec) {
			s.NodeSelector, s.OS = map[string]string{"kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "amd64"}, &corev1.PodOS{Name: "linux"}
		}, nil, false, ""},
		{"a label that nobody knows", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }, nil, false, ""},
		{"another system", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/os": "windows"} }, nil, false, "it asks for kubernetes.io/os=windows, and this machine has linux"},
		{"by its old label", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"beta.kubernetes.io/os": "windows"} }, nil, false, "it asks for beta.kubernetes.io/os=windows, and this machine has linux"},
		{"another processor", func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}
		}, nil, false, "it asks for kubernetes.io/arch=arm64, and this machine has amd64"},
		{"the field", func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: "windows"} }, nil, false, "it is for windows, and this machine has linux"},
		{"affinity", func(s *corev1.PodSpec) { s.Affinity = affinity(in("kubernetes.io/arch", "arm64", "s390x")) }, nil, false, "no term of its node affinity is for a machine with linux/amd64"},
		{"one of two terms", func(s *corev1.PodSpec) {
			s.Affinity = affinity(in("kubernetes.io/arch", "arm64"), in("kubernetes.io/arch", "amd64"))
		}, nil, false, ""},
		{"a term about something else", func(s *corev1.PodSpec) { s.Affinity = affinity(in("kubernetes.io/arch", "arm64"), in("disk", "ssd")) }, nil, false, ""},
		{"not the other one", func(s *corev1.PodSpec) { s.Affinity = affinity(noWindows) }, nil, false, ""},
		{"it runs", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"} }, nil, true, ""},
		{"an operator who knows better", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"} }, map[string]string{"kubernetes.io/arch": "arm64"}, false, ""},
	} {
		p := edited(requesting("p", "", "", ""), func(p *corev1.Pod) { tt.change(&p.Spec) })
		h := admit.Holding{Seen: true}
		if tt.runs {
			h.Pod = p
		}
		d := admit.Decide(admit.Input{
			Desired: []*manifests.Pod{p}, Known: map[manifests.Key]admit.Holding{p.Key(): h}, Listed: true, Node: "node", Labels: tt.labels,
			Platform: manifests.Platform{OS: "linux", Arch: "amd64"},
		})
		want := runner.Held{}
		if tt.want != "" {
			want.Reason, want.Message = admit.ReasonNodeAffinity, failed+tt.want
		}
		if got := d.Held[p.Key()]; got.Reason != want.Reason || got.Message != want.Message {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, want)
		}
	}
}

// Whatever is desired: it comes to rest, with nothing above what there is, and nobody waits for whom there is room.
func TestAdmissionComesToRestWithoutOvercommitting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := admit.Requests{corev1.ResourceCPU: 4000, corev1.ResourceMemory: 4 << 30}
		var desired []*manifests.Pod
		for i := range rapid.IntRange(1, 12).Draw(t, "pods") {
			desired = append(desired, requesting(fmt.Sprintf("p%02d", i), fmt.Sprintf("%dm", rapid.IntRange(0, 5000).Draw(t, "cpu")), fmt.Sprintf("%dMi", rapid.IntRange(0, 5000).Draw(t, "memory")),
				rapid.SampledFrom([]string{"", "1", "2", "3", "2000000000"}).Draw(t, "priority")))
		}
		active := map[manifests.Key]bool{}
		for _, p := range desired {
			if rapid.Bool().Draw(t, "runs") && fits(total, desired, active, p) {
				active[p.Key()] = true
			}
		}
		for round := 0; ; round++ {
			in := admit.Input{Desired: desired, Known: map[manifests.Key]admit.Holding{}, Listed: true, Room: total}
			for _, p := range desired {
				h := admit.Holding{Seen: true, Priority: manifests.PriorityOf(p)}
				if active[p.Key()] {
					h.Pod = p
				}
				in.Known[p.Key()] = h
			}
			d := admit.Decide(in)
			quiet := len(d.Preempted) == 0
			for k := range d.Preempted {
				if !active[k] {
					t.Fatalf("%s is to stop and does not run", k)
				}
				delete(active, k)
			}
			for _, p := range desired {
				if _, held := d.Held[p.Key()]; held || active[p.Key()] || d.Preempted[p.Key()] != (manifests.Key{}) {
					continue
				}
				active[p.Key()], quiet = true, false
			}
			if used := sum(desired, active); used[corev1.ResourceCPU] > 4000 || used[corev1.ResourceMemory] > 4<<30 {
				t.Fatalf("more than there is is used: %v", used)
			}
			if quiet {
				break
			}
			if round > 60 {
				t.Fatal("it does not come to rest")
			}
		}
		for _, p := range desired {
			if !active[p.Key()] && fits(total, desired, active, p) {
				t.Fatalf("%s waits, and there is room", p.Key())
			}
		}
	})
}

func sum(all []*manifests.Pod, active map[manifests.Key]bool) admit.Requests {
	used := admit.Requests{}
	for _, p := range all {
		if active[p.Key()] {
			for name, n := range admit.PodRequests(p) {
				used[name] += n
			}
		}
	}
	return used
}

func fits(total admit.Requests, all []*manifests.Pod, active map[manifests.Key]bool, p *manifests.Pod) bool {
	used := sum(all, active)
	for name, n := range admit.PodRequests(p) {
		if used[name]+n > total[name] {
			return false
		}
	}
	return true
}

func (r *rig) phases(want string, names ...string) {
	r.t.Helper()
	var got []string
	for _, n := range names {
		s := r.status(n).Pod.Status
		text := n + ":" + string(s.Phase)
		if s.Reason != "" {
			text += "/" + s.Reason
		}
		got = append(got, text)
	}
	if strings.Join(got, " ") != want {
		r.t.Errorf("%s, want %s", strings.Join(got, " "), want)
	}
}

func TestAPodThatDoesNotFitIsTriedAgainWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		events := &diary{count: map[string]int{}, uids: map[string]bool{}}
		r.cfg.Events = events
		r.start()
		a, b := requesting("a", "3", "", ""), requesting("b", "2", "", "")
		r.update(a, b)
		r.phases("a:Running b:Pending/OutOfcpu", "a", "b")
		const want = "OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 3000, capacity: 4000"
		if s := r.status("b"); s.Why != want || s.Trouble.Kind != podstatus.TroubleHeld {
			t.Errorf("why: %s", s.Why)
		}
		if said := events.String(); !strings.Contains(said, "W OutOfcpu b "+strings.TrimPrefix(want, "OutOfcpu: ")+"\n") {
			t.Errorf("no event in\n%s", said)
		}
		r.restart() // what runs is not judged again, and what waits still waits
		r.update(a, b)
		r.phases("a:Running b:Pending/OutOfcpu", "a", "b")
		r.update(edited(a, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = resource.MustParse("2")
		}), b)
		r.pass(time.Minute)
		r.phases("a:Running b:Running", "a", "b")
		r.update(b, requesting("c", "3", "", ""))
		r.pass(time.Minute)
		r.phases("b:Running c:Pending/OutOfcpu", "b", "c")
		r.update(requesting("c", "3", "", ""))
		r.pass(time.Minute)
		r.phases("c:Running", "c")
	})
}

func TestWhatHasEndedLeavesItsRoomToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room, r.cfg.MaxPods = room("4", "4Gi"), 1
		r.start()
		job := edited(requesting("job", "3", "", ""), func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
		b := requesting("b", "2", "", "")
		r.update(job, b)
		r.phases("job:Running b:Pending/OutOfpods", "job", "b")
		if err := r.fake.Exit(key("job"), "a", 0); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		r.phases("job:Succeeded b:Running", "job", "b")
		if s := r.status("job"); s.Why != "" {
			t.Errorf("the job: %s", s.Why)
		}
	})
}

func TestAPodOfAHigherPriorityMakesRoomAndTheOtherComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		low := edited(requesting("low", "3", "", "1"), func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = runtimetest.ScriptSlowStop })
		high, small := requesting("high", "3", "", "2"), requesting("small", "1500m", "", "")
		r.update(low)
		uid := r.status("low").Pod.UID
		r.update(low, small, high)
		if s := r.status("high"); !strings.HasSuffix(s.Why, "; stopped to make room: default/low") && !strings.HasSuffix(s.Why, "; it has room when those are gone that are being stopped") {
			t.Errorf("why: %s", s.Why)
		}
		r.pass(time.Minute)
		r.phases("low:Failed/Preempting high:Running small:Pending/OutOfcpu", "low", "high", "small")
		if s := r.status("low"); s.Pod.Status.Message != "Preempted in order to admit critical pod default/high" || !strings.HasPrefix(s.Why, "OutOfcpu: ") {
			t.Errorf("%s; %s", s.Pod.Status.Message, s.Why)
		}
		r.restart()
		r.update(low, small, high)
		r.pass(10 * time.Minute)
		r.phases("low:Failed/Preempting high:Running small:Pending/OutOfcpu", "low", "high", "small")
		r.update(low, small)
		r.pass(time.Minute)
		r.phases("low:Running small:Pending/OutOfcpu", "low", "small")
		if now := r.status("low").Pod.UID; now == uid {
			t.Error("it is the same pod")
		}
	})
}

func TestPodsStartByPriority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.MaxConcurrent = 1
		r.start()
		var all []*manifests.Pod
		for i := range 9 {
			all = append(all, requesting(fmt.Sprintf("p%d", i), "", "", fmt.Sprint(i*7%9)))
		}
		r.update(all...)
		r.pass(time.Minute)
		var order []string
		for _, e := range r.fake.Journal() {
			if e.Action.Kind == runner.CreateSandbox {
				order = append(order, fmt.Sprint(*all[e.Key.Name[1]-'0'].Object.Spec.Priority))
			}
		}
		if got := strings.Join(order, " "); got != "8 7 6 5 4 3 2 1 0" {
			t.Errorf("priorities in the order of their start: %s", got)
		}
	})
}

// What a pod has written is given back when that is what was missing; else its containers stay, for people to look at.
func TestAPodThatIsEvictedForTheDiskGivesItBack(t *testing.T) {
	for resource, left := range map[string]int{runner.ResourceDisk: 0, runner.ResourceInodes: 0, "memory": 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			r.update(requesting("web", "", "", ""))
			r.pool.Barrier(func(*manifests.Pod) *runner.Held { return &runner.Held{Reason: "Evicted", Message: "m"} })
			r.pool.Evict(key("web"), plan.Eviction{
				UID: string(r.status("web").Pod.UID), Reason: runner.ReasonEvicted, Cause: cause.Cause{Kind: cause.Evicted, Resource: resource}, Message: "low on something", Grace: time.Second,
			})
			r.pass(time.Minute)
			r.phases("web:Failed/Evicted", "web")
			if n := len(r.fake.State(key("web")).Containers); n != left {
				t.Errorf("%s: %d containers are left", resource, n)
			}
			r.pool.Barrier(nil)
			r.pass(time.Minute)
			r.phases("web:Running", "web")
		})
	}
}

func TestAnEvictedPodWaitsForTheBarrier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		web := edited(requesting("web", "", "", ""), func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = runtimetest.ScriptStubborn })
		r.update(web)
		uid := string(r.status("web").Pod.UID)
		order := plan.Eviction{UID: "another", Reason: runner.ReasonEvicted, Message: "The node was low on resource: memory.", Grace: time.Second}
		r.pool.Evict(key("web"), order)
		r.pass(time.Minute)
		r.phases("web:Running", "web")
		r.pool.Barrier(func(*manifests.Pod) *runner.Held {
			return &runner.Held{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]."}
		})
		r.settle()
		r.phases("web:Running", "web") // a barrier stops nobody
		order.UID = uid
		r.pool.Evict(key("web"), order)
		r.pass(1500 * time.Millisecond)
		r.phases("web:Failed/Evicted", "web")
		r.restart()
		r.pool.Barrier(func(*manifests.Pod) *runner.Held {
			return &runner.Held{Reason: "Evicted", Message: "The node had condition: [MemoryPressure]."}
		})
		r.update(web)
		r.pass(10 * time.Minute)
		r.phases("web:Failed/Evicted", "web")
		if s := r.status("web"); s.Why != "Evicted: The node had condition: [MemoryPressure].; before that: Evicted: The node was low on resource: memory." {
			t.Errorf("why: %s", s.Why)
		}
		r.pool.Barrier(nil)
		r.pass(time.Second)
		r.phases("web:Running", "web")
	})
}

// TestAnOrderToMakeRoomIsTakenBack: a pod that has to make room, and could not be stopped yet, goes on when nobody needs that any more.
func TestAnOrderToMakeRoomIsTakenBack(t *testing.T) {
	high := requesting("high", "3", "", "2")
	for name, tt := range map[string]struct {
		then []*manifests.Pod
		// want is how all are a minute after they can be seen again; message that of low.
		want, message string
	}{
		"nobody needs room": {nil, "low:Running", ""},
		"it has room": {[]*manifests.Pod{edited(high, func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources = requesting("high", "1", "", "2").Object.Spec.Containers[0].Resources
		})}, "low:Running high:Running", ""},
		"it waits still":       {[]*manifests.Pod{edited(high, func(p *corev1.Pod) { p.Spec.PreemptionPolicy = new(corev1.PreemptNever) })}, "low:Failed/Preempting high:Running", "high"},
		"another one needs it": {[]*manifests.Pod{requesting("other", "2", "", "3")}, "low:Failed/Preempting other:Running", "other"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.cfg.Room = room("4", "4Gi")
				r.start()
				low := requesting("low", "3", "", "1")
				r.update(low)
				uid := r.status("low").Pod.UID
				r.pool.Gate(func(p *manifests.Pod) (rule runner.Rule) {
					if p.Object.Name == "high" {
						rule.Wait = &runner.Held{Reason: runner.ReasonCordoned}
					}
					return rule
				})
				r.update(low, high)
				r.fake.Blind(runtimetest.ErrBlind)
				r.pool.Gate(nil)
				r.settle()
				if !strings.Contains(r.log.String(), `msg="pod has to make room" pod=default/low for=default/high`) {
					t.Error("nobody was to make room")
				}
				all := append([]*manifests.Pod{low}, tt.then...)
				r.update(all...)
				r.fake.Blind(nil)
				r.pass(time.Minute)
				names := []string{"low"}
				for _, p := range tt.then {
					names = append(names, p.Object.Name)
				}
				r.phases(tt.want, names...)
				s := r.status("low").Pod
				if tt.message == "" && s.UID != uid || tt.message != "" && s.Status.Message != "Preempted in order to admit critical pod default/"+tt.message {
					t.Errorf("%s, %s: %s", s.UID, uid, s.Status.Message)
				}
			})
		})
	}
}

// TestAnOrderToMakeRoomThatIsCarriedOut: who needed the room may be gone before it is free.
func TestAnOrderToMakeRoomThatIsCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.cfg.Room = room("4", "4Gi")
		r.start()
		low := edited(requesting("low", "3", "", "1"), func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = runtimetest.ScriptSlowStop })
		other := requesting("other", "1", "", "1")
		r.update(low, other)
		before := r.status("other").Pod.UID
		r.update(low, other, requesting("high", "3", "", "2"))
		if s := r.status("low").Pod.Status; s.Reason != runner.ReasonPreempting {
			t.Fatalf("low: %s %s", s.Phase, s.Reason)
		}
		r.update(low, other, requesting("late", "3", "", "2"))
		r.pass(time.Minute)
		r.phases("low:Failed/Preempting other:Running late:Running", "low", "other", "late")
		r.update(low, other)
		r.pass(time.Minute)
		r.phases("low:Running other:Running", "low", "other")
		if r.status("other").Pod.UID != before {
			t.Error("another one had to go, too")
		}
	})
}
