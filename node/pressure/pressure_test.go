package pressure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"monopod/manifests"
)

func thresholds(t testing.TB, w Written) []Threshold {
	t.Helper()
	all, err := w.Parse()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestThresholdsAreReadAsAKubeletReadsThem(t *testing.T) {
	type m = map[string]string
	for _, tt := range []struct {
		name    string
		written Written
		want    string
	}{
		{"nothing", Written{}, "memory.available<100Mi nodefs.available<10% nodefs.inodesFree<5% imagefs.available<15% imagefs.inodesFree<5%"},
		{"one replaces all defaults", Written{Hard: m{"memory.available": "5%"}}, "memory.available<5%"},
		{"unless they are merged", Written{Hard: m{"memory.available": "5%", "pid.available": "10"}, MergeDefaults: true}, "memory.available<5% nodefs.available<10% nodefs.inodesFree<5% imagefs.available<15% imagefs.inodesFree<5% pid.available<10"},
		{"zero is none", Written{Hard: m{"memory.available": "0", "nodefs.available": "0%"}}, ""},
		{"a limit of all pods", Written{Hard: m{"memory.available": "1Mi"}, Allocatable: true, MinReclaim: m{"memory.available": "2Mi"}}, "memory.available<1Mi+2Mi allocatableMemory.available<1Mi+2Mi"},
		{"soft ones", Written{Hard: m{"nodefs.available": "1Gi"}, Soft: m{"nodefs.available": "2Gi"}, SoftGrace: m{"nodefs.available": "90s"}}, "nodefs.available<1Gi nodefs.available<2Gi/1m30s"},
		{"no grace", Written{Soft: m{"nodefs.available": "2Gi"}}, "evictionSoft: nodefs.available has no evictionSoftGracePeriod"},
		{"no duration", Written{Soft: m{"nodefs.available": "2Gi"}, SoftGrace: m{"nodefs.available": "90"}}, `evictionSoftGracePeriod: nodefs.available: "90" is not a duration such as 30s or 5m`},
		{"no amount", Written{Hard: m{"nodefs.available": "lots"}}, `evictionHard: nodefs.available: "lots" is neither a quantity such as 100Mi nor a percentage such as 10%`},
		{"no signal", Written{Hard: m{"disk": "1Gi"}}, `evictionHard: unknown signal "disk"; expected memory.available`},
		{"not by hand", Written{MinReclaim: m{"allocatableMemory.available": "1Gi"}}, `evictionMinimumReclaim: unknown signal "allocatableMemory.available"`},
	} {
		all, err := tt.written.Parse()
		var got []string
		for _, th := range all {
			text := fmt.Sprintf("%s<%s", th.Signal, th.Amount)
			if !th.MinReclaim.IsZero() {
				text += "+" + th.MinReclaim.String()
			}
			if th.Soft {
				text += "/" + th.Grace.String()
			}
			got = append(got, text)
		}
		text := strings.Join(got, " ")
		if err != nil {
			text = err.Error()
		}
		if text != tt.want && (err == nil || !strings.HasPrefix(text, tt.want)) {
			t.Errorf("%s: %s, want %s", tt.name, text, tt.want)
		}
	}
}

// story feeds levels of memory, out of 1000 units, second by second, and returns the verdicts.
func story(cfg *Config, looks ...[2]int64) string {
	begin := time.Unix(1e9, 0)
	var s State
	var out []string
	for _, l := range looks {
		var v Verdict
		seen := Observations{}
		if l[1] >= 0 {
			seen[MemoryAvailable] = Level{l[1], 1000}
		}
		s, v = Next(begin.Add(time.Duration(l[0])*time.Second), s, cfg, seen)
		text := fmt.Sprintf("%d:", l[0])
		if len(v.Conditions) > 0 {
			text += "pressure"
		}
		if v.Reclaim != nil {
			text += "!"
			if v.Reclaim.Soft {
				text += "soft"
			}
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

func TestThresholdsOverTime(t *testing.T) {
	type m = map[string]string
	hard := Config{Thresholds: thresholds(t, Written{Hard: m{"memory.available": "100"}}), Transition: 30 * time.Second}
	reclaim := Config{Thresholds: thresholds(t, Written{Hard: m{"memory.available": "10%"}, MinReclaim: m{"memory.available": "50"}})}
	soft := Config{Thresholds: thresholds(t, Written{Hard: m{"memory.available": "100"}, Soft: m{"memory.available": "200"}, SoftGrace: m{"memory.available": "20s"}})}
	for _, tt := range []struct {
		name  string
		cfg   *Config
		looks [][2]int64
		want  string
	}{
		{"enough", &hard, [][2]int64{{0, 500}, {10, 100}}, "0: 10:"},
		{"too little, and a condition that stays for a while", &hard, [][2]int64{{0, 99}, {10, 500}, {29, 500}, {30, 500}}, "0:pressure! 10:pressure 29:pressure 30:"},
		{"up and down", &hard, [][2]int64{{0, 99}, {10, 500}, {20, 99}, {40, 500}, {49, 500}, {50, 500}}, "0:pressure! 10:pressure 20:pressure! 40:pressure 49:pressure 50:"},
		{"more than the threshold has to be free", &reclaim, [][2]int64{{0, 120}, {1, 99}, {2, 120}, {3, 149}, {4, 150}, {5, 120}}, "0: 1:pressure! 2:pressure! 3:pressure! 4: 5:"},
		{"patience", &soft, [][2]int64{{0, 150}, {10, 150}, {20, 150}, {21, 99}, {22, 150}, {23, 300}, {24, 150}}, "0:pressure 10:pressure 20:pressure!soft 21:pressure! 22:pressure!soft 23: 24:pressure"},
		{"nothing can be seen", &hard, [][2]int64{{0, -1}, {1, 99}, {2, -1}, {100, -1}}, "0: 1:pressure! 2:pressure 100:pressure"},
		{"the clock is set back", &hard, [][2]int64{{1000, 99}, {0, 500}, {1, 99}, {2, 500}}, "1000:pressure! 0: 1:pressure! 2:pressure"},
	} {
		if got := story(tt.cfg, tt.looks...); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

// Whatever is seen: while a threshold is met its condition is true, nothing is reclaimed without need, and all is over some time after.
func TestPressureBeginsAndEndsWithItsCause(t *testing.T) {
	cfg := Config{Thresholds: thresholds(t, Written{Hard: map[string]string{"memory.available": "10%", "nodefs.available": "10%", "pid.available": "10%"}, MinReclaim: map[string]string{"nodefs.available": "5%"}}), Transition: 20 * time.Second}
	rapid.Check(t, func(t *rapid.T) {
		now, s := time.Unix(1e9, 0), State{}
		for range rapid.IntRange(1, 30).Draw(t, "looks") {
			seen := Observations{}
			short := map[corev1.NodeConditionType]bool{}
			for _, sig := range []Signal{MemoryAvailable, NodeFsAvailable, PIDAvailable} {
				l := Level{rapid.Int64Range(0, 200).Draw(t, "level"), 1000}
				seen[sig] = l
				short[sig.Condition()] = l.Available < 100
			}
			var v Verdict
			s, v = Next(now, s, &cfg, seen)
			for c, is := range short {
				if is && !slices.Contains(v.Conditions, c) {
					t.Fatalf("%s is not true", c)
				}
			}
			enough := int64(100)
			if v.Reclaim != nil && v.Reclaim.Signal == NodeFsAvailable {
				enough += 50
			}
			if v.Reclaim != nil && v.Level.Available >= enough || v.Reclaim == nil && (short[corev1.NodeMemoryPressure] || short[corev1.NodeDiskPressure] || short[corev1.NodePIDPressure]) {
				t.Fatalf("reclaim %+v at %+v", v.Reclaim, v.Level)
			}
			if v.Reclaim != nil && short[corev1.NodeMemoryPressure] && v.Reclaim.Signal != MemoryAvailable {
				t.Fatalf("memory does not come first: %s", v.Reclaim.Signal)
			}
			now = now.Add(time.Duration(rapid.Int64Range(1, 30).Draw(t, "seconds")) * time.Second)
		}
		fine := Observations{MemoryAvailable: {900, 1000}, NodeFsAvailable: {900, 1000}, PIDAvailable: {900, 1000}}
		s, _ = Next(now, s, &cfg, fine)
		if _, v := Next(now.Add(20*time.Second), s, &cfg, fine); len(v.Conditions) > 0 || v.Reclaim != nil {
			t.Fatalf("it does not end: %+v", v)
		}
	})
}

// running is a pod that uses memory, and requests some.
func running(name string, use, request int64, priority int32) Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: corev1.PodSpec{
		Priority: &priority, Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{}}}},
	}}
	if request > 0 {
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceMemory] = *resource.NewQuantity(request, resource.BinarySI)
		p.Spec.Containers[0].Resources.Requests[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(request, resource.BinarySI)
	}
	return Pod{
		Local: true, Key: manifests.Key{Namespace: "default", Name: name}, UID: "u-" + name, Pod: p, Priority: manifests.PriorityOf(&manifests.Pod{Object: p}),
		Use: Use{Memory: use, Disk: use, Inodes: use, PIDs: use}, Containers: map[string]Use{"a": {Memory: use, Disk: use}},
	}
}

func protected(p Pod) Pod {
	p.Pod.Annotations = map[string]string{manifests.AnnotationProtected: "true"}
	return p
}

// remote is a pod of a source of another space.
func remote(p Pod) Pod {
	p.Local = false
	return p
}

func leaving(p Pod) Pod {
	p.Leaving = true
	return p
}

func TestWhoIsEvictedFirst(t *testing.T) {
	all := []Pod{
		running("within", 500, 600, 0), running("little", 110, 100, 0), running("much", 400, 100, 0), running("important", 900, 100, 5),
		running("critical", 900, 0, 2000000000), protected(running("protected", 900, 0, -5)), leaving(running("leaving", 900, 0, -5)), running("unimportant", 30, 20, -1),
		remote(running("remote", 101, 100, 1000000000)), remote(running("remote-within", 100, 100, -5)),
	}
	for _, tt := range []struct {
		signal   Signal
		critical bool
		want     string
	}{
		{MemoryAvailable, false, "remote unimportant much little important remote-within within"},
		{MemoryAvailable, true, "remote unimportant much little important critical remote-within within"},
		{NodeFsAvailable, false, "remote unimportant much little important remote-within within"},
		{NodeFsInodesFree, false, "remote-within remote unimportant within much little important"},
		{PIDAvailable, false, "remote-within remote unimportant within much little important"},
	} {
		var got []string
		for _, p := range Rank(tt.signal, all, &Config{EvictCritical: tt.critical}) {
			got = append(got, p.Key.Name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: %v, want %s", tt.signal, got, tt.want)
		}
	}
}

func TestNobodyIsEvictedInVain(t *testing.T) {
	th := &thresholds(t, Written{Hard: map[string]string{"nodefs.available": "10000"}})[0]
	l := Level{0, 100000}
	small, large := running("small", 99, 0, 0), running("large", 100, 0, 5)
	if p := Choose(th, l, []Pod{small, large}, &Config{}); p == nil || p.Key.Name != "large" {
		t.Errorf("%+v", p)
	}
	if p := Choose(th, l, []Pod{small}, &Config{}); p != nil {
		t.Errorf("%+v", p)
	}
	if p := Choose(th, Level{9999, 100000}, []Pod{running("none", 0, 0, 0)}, &Config{}); p != nil {
		t.Errorf("%+v", p)
	}
}

// The order is total, follows its rules for each pair, and never has a protected pod.
func TestTheOrderOfEviction(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var all []Pod
		evictable := 0
		for i := range rapid.IntRange(0, 12).Draw(t, "pods") {
			p := running(fmt.Sprint("p", i), rapid.Int64Range(0, 5).Draw(t, "use"), rapid.Int64Range(0, 5).Draw(t, "request"), rapid.SampledFrom([]int32{-1, 0, 1, 2000000000}).Draw(t, "priority"))
			p.Local = rapid.Bool().Draw(t, "local")
			if rapid.Bool().Draw(t, "protected") {
				p = protected(p)
			} else if !p.Priority.Critical() {
				evictable++
			}
			all = append(all, p)
		}
		ranked := Rank(MemoryAvailable, all, &Config{})
		if len(ranked) != evictable {
			t.Fatalf("%d of %d pods that may be evicted are ranked", len(ranked), evictable)
		}
		for i, p := range ranked {
			if manifests.Protected(p.Pod) || p.Priority.Critical() {
				t.Fatalf("%s is among them", p.Key)
			}
			for _, q := range ranked[i+1:] {
				pOver, qOver := p.Use.Memory-memoryRequest(&p), q.Use.Memory-memoryRequest(&q)
				if qOver > 0 && pOver <= 0 {
					t.Fatalf("%s does not exceed its request, %s does", p.Key, q.Key)
				}
				if (pOver > 0) != (qOver > 0) {
					continue
				}
				if p.Local && !q.Local {
					t.Fatalf("%s of the local space is before %s", p.Key, q.Key)
				}
				if p.Local == q.Local && (q.Priority.Value < p.Priority.Value || q.Priority.Value == p.Priority.Value && qOver > pOver) {
					t.Fatalf("%s is before %s", p.Key, q.Key)
				}
			}
		}
		slices.Reverse(all)
		again := Rank(MemoryAvailable, all, &Config{})
		if !slices.EqualFunc(ranked, again, func(a, b Pod) bool { return a.Key == b.Key }) {
			t.Fatal("it depends on the order of the pods")
		}
	})
}

func memoryRequest(p *Pod) int64 { return p.Pod.Spec.Containers[0].Resources.Requests.Memory().Value() }

func TestTheWordsOfAnEviction(t *testing.T) {
	mem := &thresholds(t, Written{Hard: map[string]string{"memory.available": "100Mi"}})[0]
	soft := &thresholds(t, Written{Hard: map[string]string{"pid.available": "0"}, Soft: map[string]string{"nodefs.available": "10%"}, SoftGrace: map[string]string{"nodefs.available": "1m"}})[0]
	cfg := &Config{MaxPodGrace: 20 * time.Second}
	over, within := running("p", 300<<20, 200<<20, 0), running("q", 100<<20, 200<<20, 0)
	for _, tt := range []struct {
		name  string
		pod   *Pod
		t     *Threshold
		level Level
		want  string
		grace time.Duration
	}{
		{
			"memory", &over, mem,
			Level{50 << 20, 1 << 30},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. Container a was using 300Mi, request is 200Mi, has larger consumption of memory.", time.Second,
		},
		{"within its request", &within, mem, Level{50 << 20, 1 << 30}, "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi.", time.Second},
		{
			"a soft one for the disk", &over, soft,
			Level{1 << 30, 20 << 30},
			"The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, available: 1Gi. Container a was using 300Mi, request is 200Mi, has larger consumption of ephemeral-storage.", 20 * time.Second,
		},
	} {
		o := OrderFor(tt.pod, tt.t, tt.level, cfg)
		if o.Message != tt.want || o.Grace != tt.grace || o.UID != tt.pod.UID {
			t.Errorf("%s: %+v", tt.name, o)
		}
	}
}

func TestWhoMayStartUnderPressure(t *testing.T) {
	memory, disk := []corev1.NodeConditionType{corev1.NodeMemoryPressure}, []corev1.NodeConditionType{corev1.NodeDiskPressure}
	both := []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure}
	best, burstable, critical := running("b", 0, 0, 0).Pod, running("u", 0, 5, 0).Pod, running("c", 0, 0, 2000000000).Pod
	tolerant := best.DeepCopy()
	tolerant.Spec.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/memory-pressure", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}
	for _, tt := range []struct {
		pod  *corev1.Pod
		now  []corev1.NodeConditionType
		want string
	}{
		{best, nil, ""},
		{best, memory, "The node had condition: [MemoryPressure]."},
		{tolerant, memory, ""},
		{burstable, memory, ""},
		{burstable, disk, "The node had condition: [DiskPressure]."},
		{burstable, both, "The node had condition: [MemoryPressure DiskPressure]."},
		{tolerant, both, "The node had condition: [MemoryPressure DiskPressure]."},
		{critical, both, ""},
	} {
		if got := Admit(&manifests.Pod{Object: tt.pod}, tt.now); got != tt.want {
			t.Errorf("%s under %v: %q", tt.pod.Name, tt.now, got)
		}
	}
}
