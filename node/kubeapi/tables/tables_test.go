package tables

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"

	"monopod/node/kubeapi/kinds"
	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/monopodv1"
)

var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

// named is the metadata of all objects here: five hours old.
func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, CreationTimestamp: ago(5 * time.Hour)}
}

func kindOf(t *testing.T, o kinds.Object) *kinds.Kind {
	t.Helper()
	all, _, err := kinds.Scheme().ObjectKinds(o)
	if err != nil {
		t.Fatal(err)
	}
	return kinds.ByKind(all[0])
}

func joined(cells []any) string {
	var all []string
	for _, c := range cells {
		all = append(all, fmt.Sprint(c))
	}
	return strings.Join(all, "|")
}

func TestEachKindHasARowForItsColumns(t *testing.T) {
	for _, k := range kinds.All() {
		o := k.New()
		cells := Row(k, o, now)
		if len(cells) != len(Columns(k)) {
			t.Errorf("%s: %d cells, %d columns", k.Kind, len(cells), len(Columns(k)))
		}
		names := 0
		for i, c := range Columns(k) {
			if c.Format == "name" {
				names++
			}
			switch v := cells[i].(type) {
			case string, bool, int64:
			default:
				t.Errorf("%s: column %s has a %T, which has no deep copy in a Table", k.Kind, c.Name, v)
			}
		}
		if names != 1 {
			t.Errorf("%s: %d columns are names", k.Kind, names)
		}
	}
}

func TestARowOfAnotherKindIsEmpty(t *testing.T) {
	k := kinds.ByKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if cells := Row(k, &corev1.ConfigMap{}, now); len(cells) != len(Columns(k)) || cells[0] != nil {
		t.Errorf("%v", cells)
	}
}

func TestKindsWithoutColumnsHaveNameAndAge(t *testing.T) {
	for _, k := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("ServiceAccount"), authenticationv1.SchemeGroupVersion.WithKind("TokenReview"),
	} {
		var names []string
		for _, c := range Columns(kinds.ByKind(k)) {
			names = append(names, c.Name)
		}
		if !slices.Equal(names, []string{"Name", "Age"}) {
			t.Errorf("%s: %v", k.Kind, names)
		}
	}
}

func TestColumnsCarryTypesAndPriorities(t *testing.T) {
	var got []string
	for _, c := range Columns(kinds.ByKind(appsv1.SchemeGroupVersion.WithKind("DaemonSet"))) {
		got = append(got, fmt.Sprintf("%s %s %d", c.Name, c.Type, c.Priority))
	}
	want := []string{
		"Name string 0", "Desired integer 0", "Current integer 0", "Ready integer 0", "Up-to-date integer 0", "Available integer 0",
		"Node Selector string 0", "Age string 0", "Containers string 1", "Images string 1", "Selector string 1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestOnlyPodsThatEndedHaveAConditionOfTheirRow(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]int{corev1.PodRunning: 0, corev1.PodPending: 0, corev1.PodSucceeded: 1, corev1.PodFailed: 1} {
		got := Conditions(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}})
		if len(got) != want || want > 0 && (got[0].Type != metav1.RowCompleted || got[0].Reason != string(phase)) {
			t.Errorf("%s: %v", phase, got)
		}
	}
	if got := Conditions(&corev1.Node{}); got != nil {
		t.Errorf("a node: %v", got)
	}
}

var podTemplate = corev1.PodTemplateSpec{Spec: corev1.PodSpec{
	Containers: []corev1.Container{{Name: "a", Image: "x:1"}, {Name: "b", Image: "y:2"}}, NodeSelector: map[string]string{"disk": "ssd"},
}}

var selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}

func TestWorkloadsAreShownAsByKubectl(t *testing.T) {
	for _, c := range []struct {
		o    kinds.Object
		want string
	}{
		{&appsv1.Deployment{
			ObjectMeta: named("d"), Spec: appsv1.DeploymentSpec{Replicas: new(int32(3)), Selector: selector, Template: podTemplate},
			Status: appsv1.DeploymentStatus{ReadyReplicas: 2, UpdatedReplicas: 1, AvailableReplicas: 2},
		}, "d|2/3|1|2|5h|a,b|x:1,y:2|app=web"},
		{&appsv1.Deployment{ObjectMeta: named("d")}, "d|0/0|0|0|5h|||"},
		{&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "??"}}}}, "|0/0|0|0|<unknown>|||<invalid>"},
		{&appsv1.ReplicaSet{
			ObjectMeta: named("r"), Spec: appsv1.ReplicaSetSpec{Replicas: new(int32(3)), Template: podTemplate},
			Status: appsv1.ReplicaSetStatus{Replicas: 2, ReadyReplicas: 1},
		}, "r|3|2|1|5h|a,b|x:1,y:2|<none>"},
		{&corev1.ReplicationController{ObjectMeta: named("r"), Spec: corev1.ReplicationControllerSpec{Selector: map[string]string{"a": "b"}}}, "r|0|0|0|5h|||a=b"},
		{&appsv1.StatefulSet{
			ObjectMeta: named("s"), Spec: appsv1.StatefulSetSpec{Replicas: new(int32(1)), Template: podTemplate},
			Status: appsv1.StatefulSetStatus{ReadyReplicas: 1},
		}, "s|1/1|5h|a,b|x:1,y:2"},
		{&appsv1.DaemonSet{
			ObjectMeta: named("n"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: podTemplate},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 5, CurrentNumberScheduled: 4, NumberReady: 3, UpdatedNumberScheduled: 2, NumberAvailable: 1},
		}, "n|5|4|3|2|1|disk=ssd|5h|a,b|x:1,y:2|app=web"},
		{&appsv1.ControllerRevision{ObjectMeta: named("s-1"), Revision: 7}, "s-1|<none>|7|5h"},
		{&appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: "s-1", CreationTimestamp: named("").CreationTimestamp, OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "s", Controller: new(true)}}},
			Revision:   7,
		}, "s-1|statefulset.apps/s|7|5h"},
		{&batchv1.CronJob{ObjectMeta: named("c"), Spec: batchv1.CronJobSpec{Schedule: "* * * * *"}}, "c|* * * * *|<none>|<unset>|0|<none>|5h|||<none>"},
		{&batchv1.CronJob{
			ObjectMeta: named("c"), Spec: batchv1.CronJobSpec{Schedule: "@daily", TimeZone: new("Asia/Tokyo"), Suspend: new(false)},
			Status: batchv1.CronJobStatus{Active: make([]corev1.ObjectReference, 2), LastScheduleTime: new(ago(time.Minute))},
		}, "c|@daily|Asia/Tokyo|False|2|60s|5h|||<none>"},
		{&batchv1.CronJob{Spec: batchv1.CronJobSpec{Suspend: new(true)}}, "||<none>|True|0|<none>|<unknown>|||<none>"},
	} {
		if got := joined(Row(kindOf(t, c.o), c.o, now)); got != c.want {
			t.Errorf("%T: %s, want %s", c.o, got, c.want)
		}
	}
}

func TestJobsSayHowTheyAreAndHowLongTheyTook(t *testing.T) {
	job := func(edit func(*batchv1.Job), conditions ...batchv1.JobConditionType) *batchv1.Job {
		o := &batchv1.Job{ObjectMeta: named("j")}
		for _, c := range conditions {
			o.Status.Conditions = append(o.Status.Conditions, batchv1.JobCondition{Type: c, Status: corev1.ConditionTrue})
		}
		if edit != nil {
			edit(o)
		}
		return o
	}
	for _, c := range []struct {
		o    *batchv1.Job
		want string
	}{
		{job(nil), "j|Running|0/1||5h"},
		{job(func(o *batchv1.Job) { o.Spec.Parallelism = new(int32(2)) }), "j|Running|0/1 of 2||5h"},
		{job(func(o *batchv1.Job) { o.Spec.Completions = new(int32(4)); o.Status.Succeeded = 3 }, batchv1.JobSuspended), "j|Suspended|3/4||5h"},
		{job(func(o *batchv1.Job) { o.Status.StartTime = new(ago(2 * time.Hour)) }, batchv1.JobFailed), "j|Failed|0/1|120m|5h"},
		{job(func(o *batchv1.Job) {
			o.Status.StartTime, o.Status.CompletionTime = new(ago(2*time.Hour)), new(ago(119*time.Minute))
		}, batchv1.JobComplete), "j|Complete|0/1|60s|5h"},
		{job(func(o *batchv1.Job) { o.DeletionTimestamp = new(ago(0)) }, batchv1.JobSuspended), "j|Terminating|0/1||5h"},
		{job(nil, batchv1.JobFailureTarget), "j|FailureTarget|0/1||5h"},
		{job(nil, batchv1.JobSuccessCriteriaMet), "j|SuccessCriteriaMet|0/1||5h"},
		{job(func(o *batchv1.Job) {
			o.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionFalse}}
		}), "j|Running|0/1||5h"},
	} {
		if got := joined(Row(kindOf(t, c.o), c.o, now)[:5]); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestKindsWithoutEffectAreShownAsByKubectl(t *testing.T) {
	rules := []networkingv1.IngressRule{{Host: "a"}, {Host: "b"}, {}, {Host: "c"}, {Host: "d"}}
	measure := func(name corev1.ResourceName, target autoscalingv2.MetricTarget) autoscalingv2.MetricSpec {
		return autoscalingv2.MetricSpec{Resource: &autoscalingv2.ResourceMetricSource{Name: name, Target: target}}
	}
	metrics := []autoscalingv2.MetricSpec{
		measure("cpu", autoscalingv2.MetricTarget{AverageUtilization: new(int32(80))}), measure("memory", autoscalingv2.MetricTarget{AverageValue: new(resource.MustParse("1Gi"))}),
		{External: &autoscalingv2.ExternalMetricSource{Target: autoscalingv2.MetricTarget{AverageValue: new(resource.MustParse("3"))}}},
	}
	autoscaler := func(metrics ...autoscalingv2.MetricSpec) kinds.Object {
		return &autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: named("h"), Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}, MinReplicas: new(int32(1)), MaxReplicas: 3, Metrics: metrics,
		}}
	}
	subjects := []rbacv1.Subject{{Kind: "User", Name: "u"}, {Kind: "Group", Name: "g"}, {Kind: "ServiceAccount", Namespace: "a", Name: "s"}, {Kind: "User", Name: "v"}}
	class := &networkingv1.IngressClass{ObjectMeta: named("c"), Spec: networkingv1.IngressClassSpec{Controller: "x.example/y"}}
	class.Annotations = map[string]string{networkingv1.AnnotationIsDefaultIngressClass: "true"}
	for _, c := range []struct {
		o    kinds.Object
		want string
	}{
		{&rbacv1.Role{ObjectMeta: named("r")}, "r|" + ago(5*time.Hour).UTC().Format(time.RFC3339)},
		{&rbacv1.RoleBinding{ObjectMeta: named("b"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}, Subjects: subjects}, "b|ClusterRole/r|5h|u, v|g|a/s"},
		{&rbacv1.ClusterRoleBinding{ObjectMeta: named("b"), RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "r"}}, "b|ClusterRole/r|5h|||"},
		{&policyv1.PodDisruptionBudget{ObjectMeta: named("p"), Spec: policyv1.PodDisruptionBudgetSpec{MinAvailable: new(intstr.FromString("50%"))}}, "p|50%|N/A|0|5h"},
		{&networkingv1.NetworkPolicy{ObjectMeta: named("n"), Spec: networkingv1.NetworkPolicySpec{PodSelector: *selector}}, "n|app=web|5h"},
		{&networkingv1.NetworkPolicy{ObjectMeta: named("n")}, "n|<none>|5h"},
		{&networkingv1.Ingress{ObjectMeta: named("i"), Spec: networkingv1.IngressSpec{IngressClassName: new("c"), Rules: rules, TLS: []networkingv1.IngressTLS{{}}}}, "i|c|a,b,c + 2 more...||80, 443|5h"},
		{&networkingv1.Ingress{ObjectMeta: named("i"), Spec: networkingv1.IngressSpec{Rules: rules[2:3]}}, "i|<none>|*||80|5h"},
		{&networkingv1.Ingress{ObjectMeta: named("i"), Spec: networkingv1.IngressSpec{Rules: rules[:3]}}, "i|<none>|a,b||80|5h"},
		{class, "c (default)|x.example/y|<none>|5h"},
		{autoscaler(metrics[:1]...), "h|Deployment/web|cpu: <unknown>/80%|1|3|0|5h"},
		{autoscaler(metrics...), "h|Deployment/web|cpu: <unknown>/80%, memory: <unknown>/1Gi + 1 more...|1|3|0|5h"},
		{autoscaler(metrics[2]), "h|Deployment/web|<unknown>/3 (avg)|1|3|0|5h"},
		{autoscaler(), "h|Deployment/web|<none>|1|3|0|5h"},
		{&corev1.ResourceQuota{ObjectMeta: named("q")}, "q|||5h"},
	} {
		if got := joined(Row(kindOf(t, c.o), c.o, now)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestServicesAndEndpointsAreShownAsByKubectl(t *testing.T) {
	service := func(spec corev1.ServiceSpec, ingress ...corev1.LoadBalancerIngress) kinds.Object {
		return &corev1.Service{ObjectMeta: named("s"), Spec: spec, Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}}}
	}
	addresses := []corev1.EndpointAddress{{IP: "10.0.0.1"}, {IP: "fd00::1"}}
	for _, c := range []struct {
		o    kinds.Object
		want string
	}{
		{service(corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: "None", ClusterIPs: []string{"None"}, Selector: map[string]string{"a": "b"}}), "s|ClusterIP|None|<none>|<none>|5h|a=b"},
		{service(corev1.ServiceSpec{Type: "ClusterIP", ClusterIP: "10.1.1.1"}), "s|ClusterIP|10.1.1.1|<none>|<none>|5h|<none>"},
		{service(corev1.ServiceSpec{Type: "NodePort", ExternalIPs: []string{"1.1.1.1", "2.2.2.2"}, Ports: []corev1.ServicePort{
			{Port: 80, NodePort: 30080, Protocol: "TCP"}, {Port: 53, Protocol: "UDP"},
		}}), "s|NodePort|<none>|1.1.1.1,2.2.2.2|80:30080/TCP,53/UDP|5h|<none>"},
		{service(corev1.ServiceSpec{Type: "LoadBalancer"}), "s|LoadBalancer|<none>|<pending>|<none>|5h|<none>"},
		{service(corev1.ServiceSpec{Type: "LoadBalancer", ExternalIPs: []string{"3.3.3.3"}}, corev1.LoadBalancerIngress{Hostname: "z"}, corev1.LoadBalancerIngress{IP: "4.4.4.4"}), "s|LoadBalancer|<none>|4.4.4.4,z,3.3.3.3|<none>|5h|<none>"},
		{service(corev1.ServiceSpec{Type: "ExternalName", ExternalName: "example.com"}), "s|ExternalName|<none>|example.com|<none>|5h|<none>"},
		{service(corev1.ServiceSpec{}), "s||<none>|<unknown>|<none>|5h|<none>"},
		{&corev1.Endpoints{ObjectMeta: named("e")}, "e|<none>|5h"},
		{&corev1.Endpoints{ObjectMeta: named("e"), Subsets: []corev1.EndpointSubset{{NotReadyAddresses: addresses, Ports: []corev1.EndpointPort{{Port: 80}}}}}, "e||5h"},
		{&corev1.Endpoints{ObjectMeta: named("e"), Subsets: []corev1.EndpointSubset{{Addresses: addresses}}}, "e|10.0.0.1,fd00::1|5h"},
		{&corev1.Endpoints{ObjectMeta: named("e"), Subsets: []corev1.EndpointSubset{
			{Addresses: addresses, Ports: []corev1.EndpointPort{{Port: 80}, {Port: 443}}},
		}}, "e|10.0.0.1:80,[fd00::1]:80,10.0.0.1:443 + 1 more...|5h"},
		{&discoveryv1.EndpointSlice{ObjectMeta: named("e"), AddressType: "IPv4"}, "e|IPv4|<unset>|<unset>|5h"},
		{&discoveryv1.EndpointSlice{
			ObjectMeta: named("e"), AddressType: "IPv4", Ports: []discoveryv1.EndpointPort{{Port: new(int32(80))}, {Name: new("web")}, {}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"1", "2"}}, {Addresses: []string{"3"}}, {Addresses: []string{"4", "5"}}},
		}, "e|IPv4|80,web,*|1,2,3 + 2 more...|5h"},
	} {
		if got := joined(Row(kindOf(t, c.o), c.o, now)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestEventsOfBothGroupsAreShownAlike(t *testing.T) {
	for _, c := range []struct {
		o    kinds.Object
		want string
	}{
		{&corev1.Event{
			ObjectMeta: named("e"), Type: "Normal", Reason: "Pulled", Message: " done\n", Count: 4, FirstTimestamp: ago(time.Hour), LastTimestamp: ago(3 * time.Second),
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web", FieldPath: "spec.containers{a}"}, Source: corev1.EventSource{Component: "kubelet", Host: "n"},
		}, "3s|Normal|Pulled|pod/web|spec.containers{a}|kubelet, n|done|60m|4|e"},
		{&corev1.Event{EventTime: metav1.NewMicroTime(now.Add(-time.Minute)), InvolvedObject: corev1.ObjectReference{Kind: "Node"}, ReportingController: "m"}, "60s|||node||m||60s|1|"},
		{&corev1.Event{}, "<unknown>||||||" + "|<unknown>|1|"},
		{&eventsv1.Event{
			ObjectMeta: named("n"), Type: "Warning", Reason: "BackOff", Note: "again", ReportingController: "m", ReportingInstance: "h",
			EventTime: metav1.NewMicroTime(now.Add(-time.Hour)), Regarding: corev1.ObjectReference{Kind: "Pod", Name: "web"},
			Series: &eventsv1.EventSeries{Count: 9, LastObservedTime: metav1.NewMicroTime(now.Add(-time.Second))},
		}, "1s|Warning|BackOff|pod/web||m, h|again|60m|9|n"},
	} {
		if got := joined(Row(kindOf(t, c.o), c.o, now)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestOtherKindsAreShownAsByKubectl(t *testing.T) {
	deleted := named("v")
	deleted.DeletionTimestamp = new(ago(0))
	old := named("v")
	old.Annotations = map[string]string{corev1.BetaStorageClassAnnotation: "old", "storageclass.kubernetes.io/is-default-class": "true"}
	gi := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	usage := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("150m"), corev1.ResourceMemory: resource.MustParse("10Mi")}
	for _, c := range []struct {
		o    kinds.Object
		want string
	}{
		{&corev1.ConfigMap{ObjectMeta: named("c"), Data: map[string]string{"a": ""}, BinaryData: map[string][]byte{"b": nil}}, "c|2|5h"},
		{&corev1.Secret{ObjectMeta: named("s"), Type: "Opaque", Data: map[string][]byte{"a": nil}}, "s|Opaque|1|5h"},
		{&corev1.Namespace{ObjectMeta: named("n"), Status: corev1.NamespaceStatus{Phase: "Active"}}, "n|Active|5h"},
		{&corev1.ServiceAccount{ObjectMeta: named("default")}, "default|5h"},
		{&corev1.Node{ObjectMeta: named("n")}, "n|Unknown|<none>|5h||<none>|<none>|<unknown>|<unknown>|<unknown>"},
		{&corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: map[string]string{"node-role.kubernetes.io/edge": "", "node-role.kubernetes.io/": "", "kubernetes.io/role": "a"}},
			Spec:       corev1.NodeSpec{Unschedulable: true},
			Status: corev1.NodeStatus{
				Conditions: []corev1.NodeCondition{{Type: "DiskPressure", Status: "True"}, {Type: "Ready", Status: "True"}},
				Addresses:  []corev1.NodeAddress{{Type: "Hostname", Address: "h"}, {Type: "InternalIP", Address: "10.0.0.2"}, {Type: "ExternalIP", Address: "8.8.8.8"}},
				NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1", OSImage: "Debian", KernelVersion: "6.1", Architecture: "arm64", ContainerRuntimeVersion: "containerd://2"},
			},
		}, "n|Ready,SchedulingDisabled|a,edge|<unknown>|v1|10.0.0.2|8.8.8.8|Debian|6.1 (arm64)|containerd://2"},
		{&corev1.Node{Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "Unknown"}}}}, "|NotReady|<none>|<unknown>||<none>|<none>|<unknown>|<unknown>|<unknown>"},
		{&corev1.PersistentVolume{
			ObjectMeta: deleted, Spec: corev1.PersistentVolumeSpec{
				Capacity: gi, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteMany", "ReadWriteOnce", "ReadWriteOnce"}, PersistentVolumeReclaimPolicy: "Retain",
				ClaimRef: &corev1.ObjectReference{Namespace: "ns", Name: "c"}, StorageClassName: "fast", VolumeMode: new(corev1.PersistentVolumeBlock),
			}, Status: corev1.PersistentVolumeStatus{Phase: "Bound"},
		}, "v|1Gi|RWO,RWX|Retain|Terminating|ns/c|fast|<unset>||5h|Block"},
		{&corev1.PersistentVolumeClaim{ObjectMeta: old, Status: corev1.PersistentVolumeClaimStatus{Phase: "Pending", Capacity: gi}}, "v|Pending||||old|<unset>|5h|<unset>"},
		{&corev1.PersistentVolumeClaim{
			ObjectMeta: named("c"), Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "v", StorageClassName: new("s"), VolumeAttributesClassName: new("gold")},
			Status: corev1.PersistentVolumeClaimStatus{Phase: "Bound", Capacity: gi, AccessModes: []corev1.PersistentVolumeAccessMode{"ReadWriteOncePod", "ReadOnlyMany"}},
		}, "c|Bound|v|1Gi|ROX,RWOP|s|gold|5h|<unset>"},
		{&storagev1.StorageClass{ObjectMeta: old, Provisioner: "p"}, "v (default)|p|Delete|Immediate|false|5h"},
		{&storagev1.StorageClass{
			ObjectMeta: named("s"), Provisioner: "p", ReclaimPolicy: new(corev1.PersistentVolumeReclaimRetain),
			VolumeBindingMode: new(storagev1.VolumeBindingWaitForFirstConsumer), AllowVolumeExpansion: new(true),
		}, "s|p|Retain|WaitForFirstConsumer|true|5h"},
		{&schedulingv1.PriorityClass{ObjectMeta: named("p"), Value: 7, GlobalDefault: true, PreemptionPolicy: new(corev1.PreemptNever)}, "p|7|true|5h|Never"},
		{&nodev1.RuntimeClass{ObjectMeta: named("r"), Handler: "runc"}, "r|runc|5h"},
		{&coordinationv1.Lease{ObjectMeta: named("l"), Spec: coordinationv1.LeaseSpec{HolderIdentity: new("me")}}, "l|me|5h"},
		{&metricsv1beta1.NodeMetrics{ObjectMeta: named("n"), Usage: usage, Window: metav1.Duration{Duration: time.Minute}}, "n|150m|10Mi|1m0s"},
		{&metricsv1beta1.PodMetrics{ObjectMeta: named("p"), Containers: []metricsv1beta1.ContainerMetrics{{Usage: usage}, {Usage: usage}}}, "p|300m|20Mi|0s"},
		{&monopodv1.Source{ObjectMeta: named("s"), Status: monopodv1.SourceStatus{Kind: "file", Location: "/etc/pods", Verdict: "Refused", Pods: []string{"default/a"}, Since: ago(time.Second)}}, "s|file|/etc/pods|Refused|1|1s|0|<none>"},
		{&monopodv1.Source{ObjectMeta: named("s"), Status: monopodv1.SourceStatus{
			Verdict: "Refused", Objects: []string{"ConfigMap default/a"}, Causes: []monopodv1.SourceCause{{Line: 3, Field: "spec.x", Message: "no"}, {}},
		}}, "s|||Refused|0|<unknown>|1|line 3: spec.x: no"},
		{&monopodv1.Revision{ObjectMeta: named("web-2"), Pod: "web", Number: 2, Status: monopodv1.RevisionStatus{Outcome: "Ready", Active: true}}, "web-2|web|2|Ready|true|<none>|5h"},
		{&monopodv1.Image{ObjectMeta: named("sha256-1"), Names: []string{"a", "b", "c", "d", "e"}, SizeBytes: 1_500_000, LastUsed: ago(time.Minute)}, "sha256-1|a,b,c + 2 more...|1.5 MB|<none>|60s"},
		{&monopodv1.Agent{ObjectMeta: named("n"), Version: "v1", ResidentBytes: 17_000_000, ShimBytes: 4000}, "n|v1|17.0 MB|4.0 kB|5h"},
	} {
		if got := joined(Row(kindOf(t, c.o), c.o, now)); got != c.want {
			t.Errorf("%T: %s, want %s", c.o, got, c.want)
		}
	}
}

// TestObjectsArePrintedAsTheAPIShowsThem: of an object that it cannot show now only the name is known.
func TestObjectsArePrintedAsTheAPIShowsThem(t *testing.T) {
	three := int32(3)
	named := func(name string, replicas *int32) *appsv1.Deployment {
		return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: appsv1.DeploymentSpec{Replicas: replicas}}
	}
	k := kinds.ByKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	table := Of([]metav1.Object{named("web", nil), named("db", nil)}, map[*kinds.Kind][]kinds.Object{k: {named("web", &three), named("other", nil)}}, time.Now())
	var got []string
	for _, row := range table.Rows {
		got = append(got, fmt.Sprint(row.Cells[:4]))
	}
	if want := []string{"[web 0/3 0 0]", "[db <unknown> <unknown> <unknown>]"}; !slices.Equal(got, want) || len(table.ColumnDefinitions) != len(table.Rows[0].Cells) {
		t.Errorf("%v, want %v", got, want)
	}
	if table := Of([]metav1.Object{&corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "x/v1", Kind: "Pod"}}}, nil, time.Now()); table.Kind != "Table" || len(table.Rows)+len(table.ColumnDefinitions) > 0 {
		t.Errorf("a kind that there is not: %+v", table)
	}
}
