package admit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"pgregory.net/rapid"

	"monopod/internal/cause"
	"monopod/manifests"
	"monopod/runner"
	"monopod/runner/admit"
	"monopod/runner/runtimetest"
)

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

// local are the sources of the local space.
var local = &manifests.Spaces{Local: []string{"file", "applied"}}

// of returns a pod as one of a source.
func of(source string, p *manifests.Pod) *manifests.Pod {
	p.Origin.Source = source
	return p
}

func changed(h map[manifests.Key]admit.Holding, name string, change func(*admit.Holding)) map[manifests.Key]admit.Holding {
	v := h[key(name)]
	change(&v)
	h[key(name)] = v
	return h
}

func TestARequestThatCanNeverFitIsTold(t *testing.T) {
	for name, tt := range map[string]struct {
		pod, other *manifests.Pod
		want       cause.Cause
	}{
		"of another pod's cpu":   {requesting("m", "2", "", ""), requesting("l", "3", "", ""), cause.Cause{Kind: cause.OutOfResource, Resource: "cpu"}},
		"of all cpu":             {requesting("m", "4", "", ""), requesting("l", "3", "", ""), cause.Cause{Kind: cause.OutOfResource, Resource: "cpu"}},
		"of more cpu":            {requesting("m", "16", "", ""), requesting("l", "3", "", ""), cause.Cause{Kind: cause.OutOfResource, Fault: cause.TooLarge, Resource: "cpu"}},
		"of more on an idle one": {requesting("m", "16", "1Gi", ""), nil, cause.Cause{Kind: cause.OutOfResource, Fault: cause.TooLarge, Resource: "cpu"}},
		"of more memory, beside": {requesting("m", "2", "8Gi", ""), requesting("l", "3", "", ""), cause.Cause{Kind: cause.OutOfResource, Fault: cause.TooLarge, Resource: "memory"}},
	} {
		in := admit.Input{Desired: []*manifests.Pod{tt.pod}, Known: map[manifests.Key]admit.Holding{}, Listed: true, Room: room("4", "4Gi"), Node: "node"}
		if tt.other != nil {
			in.Known = holdings(tt.other)
		}
		in.Known[tt.pod.Key()] = admit.Holding{Seen: true}
		h := admit.Decide(in).Held[tt.pod.Key()]
		if h.Cause != tt.want {
			t.Errorf("%s: %+v, want %+v", name, h, tt.want)
		}
	}
}

func TestPodThatDoesNotFitReportsExactShortage(t *testing.T) {
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
			"c:OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000; it fits once the pods being stopped are gone",
		},
		{
			"and no other pod takes that",
			pods{requesting("c", "4", "", ""), a},
			changed(holdings(b), "b", func(h *admit.Holding) { h.Leaving = true }), nil,
			"a:OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 6000, capacity: 4000 c:OutOfcpu: Node didn't have enough resource: cpu, requested: 4000, used: 2000, capacity: 4000; it fits once the pods being stopped are gone",
		},
		{"the higher priority comes first", pods{requesting("l", "3", "", "1"), requesting("m", "3", "", "2")}, nil, nil, "l:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"},
		{
			"and makes others stop",
			pods{requesting("m", "3", "", "2")},
			holdings(requesting("l", "3", "", "1")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000; preempted: default/l l<-m",
		},
		{"not pods without a priority", pods{requesting("m", "3", "", "2")}, holdings(requesting("l", "3", "", "")), nil, "m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000"},
		{
			"but a critical one does",
			pods{requesting("m", "3", "", "2000000000")},
			holdings(requesting("l", "3", "", "")), nil,
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000; preempted: default/l l<-m",
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
			"not those of another space",
			pods{of("fleet", requesting("m", "3", "", "2000000000"))},
			holdings(of("file", requesting("l", "3", "", "1"))), func(a *admit.Input) { a.Spaces = local },
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000",
		},
		{
			"those of its own",
			pods{of("fleet", requesting("m", "3", "", "2"))},
			holdings(of("fleet", requesting("l", "3", "", "1"))), func(a *admit.Input) { a.Spaces = local },
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000; preempted: default/l l<-m",
		},
		{
			"the local space preempts those of others",
			pods{of("applied", requesting("m", "3", "", "2"))},
			holdings(of("fleet", requesting("l", "3", "", "1"))), func(a *admit.Input) { a.Spaces = local },
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000; preempted: default/l l<-m",
		},
		{
			"and comes first",
			pods{of("fleet", requesting("m", "3", "", "2000000000")), of("file", requesting("l", "3", "", ""))},
			nil, func(a *admit.Input) { a.Spaces = local },
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
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 2000, used: 4000, capacity: 4000; preempted: default/y y<-m",
		},
		{
			"labels",
			pods{chooses},
			nil, func(a *admit.Input) { a.Labels = map[string]string{"disk": "hdd", "zone": "a"} },
			"n:NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector: the node has no label disk=ssd",
		},
		{"labels that fit", pods{chooses}, nil, func(a *admit.Input) { a.Labels = map[string]string{"disk": "ssd", "zone": "a", "more": ""} }, ""},
		{"what runs does not choose again", pods{chooses}, holdings(chooses), func(a *admit.Input) { a.Labels = map[string]string{} }, ""},
		{"usage is unknown", pods{a}, nil, func(a *admit.Input) { a.Blind = true }, "a:Starting: the usage of other pods is not known yet"},
		{"running pods need not wait for that", pods{a}, holdings(a), func(a *admit.Input) { a.Blind = true }, ""},
		{
			"no pod is preempted while the usage of others is unknown",
			pods{requesting("m", "3", "", "2")},
			holdings(requesting("l", "3", "", "1")), func(a *admit.Input) { a.Blind = true },
			"m:OutOfcpu: Node didn't have enough resource: cpu, requested: 3000, used: 3000, capacity: 4000",
		},
		{
			"nor for one that may run already, whose room stays reserved",
			pods{requesting("m", "3", "", "2"), requesting("n", "1", "", "1")},
			changed(holdings(requesting("l", "3", "", "1")), "m", func(h *admit.Holding) { h.Seen = false }), nil,
			"m:Starting: whether it is already running is not known yet n:OutOfcpu: Node didn't have enough resource: cpu, requested: 1000, used: 6000, capacity: 4000",
		},
		{
			"a place by priority",
			pods{requesting("m", "", "", "9")},
			holdings(requesting("l", "", "", "1")), func(a *admit.Input) { a.MaxPods = 1 },
			"m:OutOfpods: maxPods (1) is reached; preempted: default/l l<-m",
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
		n := admit.Node{Name: "node", Labels: map[string]string{"disk": "ssd", "cores": "4"}}
		d := admit.Decide(admit.Input{
			Desired: []*manifests.Pod{p}, Known: map[manifests.Key]admit.Holding{p.Key(): {Seen: true}}, Listed: true, Node: n.Name, Labels: n.Labels,
		})
		if h, held := d.Held[p.Key()]; held == tt.fits || n.Matches(&p.Object.Spec) != tt.fits || held && !strings.HasSuffix(h.Message, "the labels of the node match no term of its node affinity") {
			t.Errorf("%s: %+v", tt.name, h)
		}
	}
}

// TestPodForOtherPlatformNeverStarts covers a machine without configured labels: its platform is known anyway.
func TestPodForOtherPlatformNeverStarts(t *testing.T) {
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
		{"an unknown label", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"disk": "ssd"} }, nil, false, ""},
		{"another system", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/os": "windows"} }, nil, false, "it requires kubernetes.io/os=windows, but this machine has linux"},
		{"by its old label", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"beta.kubernetes.io/os": "windows"} }, nil, false, "it requires beta.kubernetes.io/os=windows, but this machine has linux"},
		{"another processor", func(s *corev1.PodSpec) {
			s.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64", "kubernetes.io/os": "linux"}
		}, nil, false, "it requires kubernetes.io/arch=arm64, but this machine has amd64"},
		{"the field", func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: "windows"} }, nil, false, "it is for windows, but this machine has linux"},
		{"affinity", func(s *corev1.PodSpec) { s.Affinity = affinity(in("kubernetes.io/arch", "arm64", "s390x")) }, nil, false, "no term of its node affinity matches a machine with linux/amd64"},
		{"one of two terms", func(s *corev1.PodSpec) {
			s.Affinity = affinity(in("kubernetes.io/arch", "arm64"), in("kubernetes.io/arch", "amd64"))
		}, nil, false, ""},
		{"a term about something else", func(s *corev1.PodSpec) { s.Affinity = affinity(in("kubernetes.io/arch", "arm64"), in("disk", "ssd")) }, nil, false, ""},
		{"not the other one", func(s *corev1.PodSpec) { s.Affinity = affinity(noWindows) }, nil, false, ""},
		{"it runs", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"} }, nil, true, ""},
		{"a label overridden by the operator", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kubernetes.io/arch": "arm64"} }, map[string]string{"kubernetes.io/arch": "arm64"}, false, ""},
	} {
		p := edited(requesting("p", "", "", ""), func(p *corev1.Pod) { tt.change(&p.Spec) })
		h := admit.Holding{Seen: true}
		if tt.runs {
			h.Pod = p
		}
		n := admit.Node{Name: "node", Labels: tt.labels, Platform: manifests.Platform{OS: "linux", Arch: "amd64"}}
		d := admit.Decide(admit.Input{
			Desired: []*manifests.Pod{p}, Known: map[manifests.Key]admit.Holding{p.Key(): h}, Listed: true, Node: n.Name, Labels: n.Labels, Platform: n.Platform,
		})
		if !tt.runs && n.Matches(&p.Object.Spec) != (tt.want == "") {
			t.Errorf("%s: it matches the node, or is held", tt.name)
		}
		want := runner.Held{}
		if tt.want != "" {
			want.Reason, want.Message = admit.ReasonNodeAffinity, failed+tt.want
		}
		if got := d.Held[p.Key()]; got.Reason != want.Reason || got.Message != want.Message {
			t.Errorf("%s:\ngot  %+v\nwant %+v", tt.name, got, want)
		}
	}
}

// TestAdmissionConvergesWithoutOvercommit: for any desired pods, admission converges, never exceeds a limit, and holds no pod that
// would fit.
func TestAdmissionConvergesWithoutOvercommit(t *testing.T) {
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

func TestFinalOfHeldPods(t *testing.T) {
	port := func(name string, number int32) *manifests.Pod {
		c := testContainer("a", runtimetest.ScriptServe)
		c.Ports = []corev1.ContainerPort{{ContainerPort: 80, HostPort: number}}
		return testPod(name, c)
	}
	for name, tt := range map[string]struct {
		a    admit.Input
		want string
		fin  bool
	}{
		"a port that a pod keeps":               {admit.Input{Desired: []*manifests.Pod{port("web", 80)}, Known: holdings(port("old", 80))}, runner.ReasonHostPortConflict, true},
		"a port of a pod that is being stopped": {admit.Input{Desired: []*manifests.Pod{port("web", 80)}, Known: changed(holdings(port("old", 80)), "old", func(h *admit.Holding) { h.Leaving = true })}, runner.ReasonHostPortConflict, false},
		"no room":                               {admit.Input{Desired: []*manifests.Pod{requesting("web", "2", "", "")}, Known: holdings(requesting("old", "3", "", "")), Room: room("4", "1Gi")}, "OutOfcpu", true},
		"room that will be free":                {admit.Input{Desired: []*manifests.Pod{requesting("web", "2", "", "")}, Known: changed(holdings(requesting("old", "3", "", "")), "old", func(h *admit.Holding) { h.Leaving = true }), Room: room("4", "1Gi")}, "OutOfcpu", false},
		"unknown usage":                         {admit.Input{Desired: []*manifests.Pod{requesting("web", "2", "", "")}, Known: holdings(requesting("old", "3", "", "")), Room: room("4", "1Gi"), Blind: true}, "OutOfcpu", false},
	} {
		t.Run(name, func(t *testing.T) {
			tt.a.Listed = true
			for _, p := range tt.a.Desired {
				tt.a.Known[p.Key()] = admit.Holding{Seen: true}
			}
			got := admit.Decide(tt.a).Held[key("web")]
			if got.Reason != tt.want || got.Final != tt.fin {
				t.Errorf("%+v", got)
			}
		})
	}
}

// TestPodsWaitForLostLabels: only those that are not there yet, and select by labels of which nothing is known.
func TestPodsWaitForLostLabels(t *testing.T) {
	n := admit.Node{Name: "node", Labels: map[string]string{"site": "lab", "kubernetes.io/os": "linux"}, LabelsLost: true}
	selects := func(labels map[string]string, keys ...string) *manifests.Pod {
		return edited(requesting("p", "", "", ""), func(p *corev1.Pod) {
			p.Spec.NodeSelector = labels
			var terms []corev1.NodeSelectorTerm
			for _, key := range keys {
				terms = append(terms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpDoesNotExist}}})
			}
			if terms != nil {
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
			}
		})
	}
	for _, tt := range []struct {
		name    string
		pod     *manifests.Pod
		runs    bool
		want    string
		matches bool
	}{
		{"nothing", selects(nil), false, "", true},
		{"known labels", selects(map[string]string{"site": "lab", "kubernetes.io/os": "linux"}), false, "", true},
		{"a known other value", selects(map[string]string{"site": "x"}), false, "the node has no label site=x", false},
		{"an unknown label", selects(map[string]string{"site": "lab", "role": "primary"}), false, "the pod selects by role", true},
		{"unknown labels", selects(map[string]string{"role": "primary"}, "site", "gpu"), false, "the pod selects by gpu, role", true},
		{"affinity", selects(nil, "gpu"), false, "the pod selects by gpu", true},
		{"it runs", selects(map[string]string{"role": "primary"}), true, "", true},
	} {
		h := admit.Holding{Seen: true}
		if tt.runs {
			h.Pod = tt.pod
		}
		d := admit.Decide(admit.Input{
			Desired: []*manifests.Pod{tt.pod}, Known: map[manifests.Key]admit.Holding{tt.pod.Key(): h}, Listed: true, Node: n.Name, Labels: n.Labels, LabelsLost: true,
		})
		got, held := d.Held[tt.pod.Key()]
		if held != (tt.want != "") || !strings.HasSuffix(got.Message, tt.want) || n.Matches(&tt.pod.Object.Spec) != tt.matches {
			t.Errorf("%s: %+v", tt.name, got)
		}
	}
}
