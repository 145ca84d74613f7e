package kinds

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/node/kubeapi/metricsv1beta1"
	"monopod/node/kubeapi/monopodv1"
)

// The verbs of kinds.
var (
	reads    = []string{"get", "list", "watch"}                                                            //nolint:gochecknoglobals // a table
	writes   = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"} //nolint:gochecknoglobals // a table
	creates  = []string{"create"}                                                                          //nolint:gochecknoglobals // a table
	gets     = []string{"get"}                                                                             //nolint:gochecknoglobals // a table
	changes  = []string{"get", "patch", "update"}                                                          //nolint:gochecknoglobals // a table
	connects = []string{"create", "get"}                                                                   //nolint:gochecknoglobals // a table
	proxies  = []string{"create", "delete", "get", "patch", "update"}                                      //nolint:gochecknoglobals // a table
)

// poll is the interval at which measured or computed kinds are polled while they are watched.
const poll = 5 * time.Second

// all returns the table, by group and plural.
func all() []*Kind {
	kinds := slices.Concat(coreAndApps(), otherGroups(), inertKinds())
	slices.SortFunc(kinds, func(a, b *Kind) int {
		return cmp.Or(strings.Compare(a.Group, b.Group), strings.Compare(a.Plural, b.Plural))
	})
	return kinds
}

// coreAndApps returns the kinds of the groups "" and apps.
func coreAndApps() []*Kind {
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	scale := Subresource{"scale", autoscalingv1.SchemeGroupVersion.WithKind("Scale"), changes}
	status := func(kind string) Subresource { return Subresource{"status", apps.WithKind(kind), changes} }
	return []*Kind{
		{GroupVersionKind: core.WithKind("ConfigMap"), Plural: "configmaps", Singular: "configmap", Short: []string{"cm"}, Namespaced: true, Verbs: writes},
		{GroupVersionKind: core.WithKind("Endpoints"), Plural: "endpoints", Singular: "endpoints", Short: []string{"ep"}, Namespaced: true, Verbs: reads},
		{
			GroupVersionKind: core.WithKind("Event"), Plural: "events", Singular: "event", Short: []string{"ev"}, Namespaced: true,
			Verbs: writes, fields: eventFields,
		},
		{
			GroupVersionKind: core.WithKind("Namespace"), Plural: "namespaces", Singular: "namespace", Short: []string{"ns"},
			Verbs: []string{"create", "delete", "get", "list", "patch", "update", "watch"}, fields: namespaceFields,
			Subresources: []Subresource{{"status", core.WithKind("Namespace"), changes}},
		},
		{
			GroupVersionKind: core.WithKind("Node"), Plural: "nodes", Singular: "node", Short: []string{"no"},
			Verbs: []string{"get", "list", "patch", "update", "watch"}, fields: nodeFields,
			Subresources: []Subresource{{"proxy", core.WithKind("NodeProxyOptions"), proxies}, {"status", core.WithKind("Node"), changes}},
		},
		{GroupVersionKind: core.WithKind("PersistentVolumeClaim"), Plural: "persistentvolumeclaims", Singular: "persistentvolumeclaim", Short: []string{"pvc"}, Namespaced: true, Verbs: writes},
		{GroupVersionKind: core.WithKind("PersistentVolume"), Plural: "persistentvolumes", Singular: "persistentvolume", Short: []string{"pv"}, Verbs: writes},
		{
			GroupVersionKind: core.WithKind("Pod"), Plural: "pods", Singular: "pod", Short: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
			Verbs: writes, fields: podFields,
			Subresources: []Subresource{
				{"attach", core.WithKind("PodAttachOptions"), connects},
				{"binding", core.WithKind("Binding"), creates},
				{"ephemeralcontainers", core.WithKind("Pod"), changes},
				{"eviction", policyv1.SchemeGroupVersion.WithKind("Eviction"), creates},
				{"exec", core.WithKind("PodExecOptions"), connects},
				{"log", core.WithKind("Pod"), []string{"get"}},
				{"portforward", core.WithKind("PodPortForwardOptions"), connects},
				{"proxy", core.WithKind("PodProxyOptions"), proxies},
				{"resize", core.WithKind("Pod"), changes},
				{"status", core.WithKind("Pod"), changes},
			},
		},
		{
			GroupVersionKind: core.WithKind("ReplicationController"), Plural: "replicationcontrollers", Singular: "replicationcontroller",
			Short: []string{"rc"}, Categories: []string{"all"}, Namespaced: true, Verbs: reads, fields: controllerFields,
		},
		{GroupVersionKind: core.WithKind("Secret"), Plural: "secrets", Singular: "secret", Namespaced: true, Verbs: writes, fields: secretFields},
		{
			GroupVersionKind: core.WithKind("ServiceAccount"), Plural: "serviceaccounts", Singular: "serviceaccount", Short: []string{"sa"}, Namespaced: true, Verbs: writes,
			Subresources: []Subresource{{"token", authenticationv1.SchemeGroupVersion.WithKind("TokenRequest"), creates}},
		},
		{
			GroupVersionKind: core.WithKind("Service"), Plural: "services", Singular: "service", Short: []string{"svc"}, Categories: []string{"all"},
			Namespaced: true, Verbs: writes, fields: serviceFields,
			Subresources: []Subresource{{"proxy", core.WithKind("ServiceProxyOptions"), proxies}, {"status", core.WithKind("Service"), changes}},
		},
		{GroupVersionKind: apps.WithKind("ControllerRevision"), Plural: "controllerrevisions", Singular: "controllerrevision", Namespaced: true, Verbs: reads},
		{
			GroupVersionKind: apps.WithKind("DaemonSet"), Plural: "daemonsets", Singular: "daemonset", Short: []string{"ds"}, Categories: []string{"all"},
			Namespaced: true, Verbs: writes, Subresources: []Subresource{status("DaemonSet")},
		},
		{
			GroupVersionKind: apps.WithKind("Deployment"), Plural: "deployments", Singular: "deployment", Short: []string{"deploy"}, Categories: []string{"all"},
			Namespaced: true, Verbs: writes, Subresources: []Subresource{scale, status("Deployment")},
		},
		{
			GroupVersionKind: apps.WithKind("ReplicaSet"), Plural: "replicasets", Singular: "replicaset", Short: []string{"rs"}, Categories: []string{"all"},
			Namespaced: true, Verbs: writes, Subresources: []Subresource{scale, status("ReplicaSet")},
		},
		{
			GroupVersionKind: apps.WithKind("StatefulSet"), Plural: "statefulsets", Singular: "statefulset", Short: []string{"sts"}, Categories: []string{"all"},
			Namespaced: true, Verbs: writes, Subresources: []Subresource{scale, status("StatefulSet")},
		},
	}
}

// otherGroups returns the kinds of the groups after apps.
func otherGroups() []*Kind {
	return []*Kind{
		virtual(Kind{GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("SelfSubjectReview"), Plural: "selfsubjectreviews"}),
		virtual(Kind{GroupVersionKind: authenticationv1.SchemeGroupVersion.WithKind("TokenReview"), Plural: "tokenreviews"}),
		virtual(Kind{GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("LocalSubjectAccessReview"), Plural: "localsubjectaccessreviews", Namespaced: true}),
		virtual(Kind{GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"), Plural: "selfsubjectaccessreviews"}),
		virtual(Kind{GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectRulesReview"), Plural: "selfsubjectrulesreviews"}),
		virtual(Kind{GroupVersionKind: authorizationv1.SchemeGroupVersion.WithKind("SubjectAccessReview"), Plural: "subjectaccessreviews"}),
		{
			GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("CronJob"), Plural: "cronjobs", Singular: "cronjob", Short: []string{"cj"}, Categories: []string{"all"},
			Namespaced: true, Verbs: writes, Subresources: []Subresource{{"status", batchv1.SchemeGroupVersion.WithKind("CronJob"), changes}},
		},
		{
			GroupVersionKind: batchv1.SchemeGroupVersion.WithKind("Job"), Plural: "jobs", Singular: "job", Categories: []string{"all"},
			Namespaced: true, Verbs: writes, fields: jobFields, Subresources: []Subresource{{"status", batchv1.SchemeGroupVersion.WithKind("Job"), changes}},
		},
		{GroupVersionKind: coordinationv1.SchemeGroupVersion.WithKind("Lease"), Plural: "leases", Singular: "lease", Namespaced: true, Verbs: writes},
		{GroupVersionKind: discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"), Plural: "endpointslices", Singular: "endpointslice", Namespaced: true, Verbs: reads},
		{
			GroupVersionKind: eventsv1.SchemeGroupVersion.WithKind("Event"), Plural: "events", Singular: "event", Short: []string{"ev"}, Namespaced: true,
			Verbs: writes, fields: newEventFields,
		},
		{GroupVersionKind: metricsv1beta1.SchemeGroupVersion.WithKind("NodeMetrics"), Plural: "nodes", Verbs: []string{"get", "list"}},
		{GroupVersionKind: metricsv1beta1.SchemeGroupVersion.WithKind("PodMetrics"), Plural: "pods", Namespaced: true, Verbs: []string{"get", "list"}},
		{
			GroupVersionKind: monopodv1.SchemeGroupVersion.WithKind("Agent"), Plural: "agents", Singular: "agent", Verbs: reads, OnDemand: true, Poll: poll,
			Subresources: agentSubresources(),
		},
		{GroupVersionKind: monopodv1.SchemeGroupVersion.WithKind("Image"), Plural: "images", Singular: "image", Verbs: reads, OnDemand: true, Poll: poll},
		{
			GroupVersionKind: monopodv1.SchemeGroupVersion.WithKind("PodReport"), Plural: "podreports", Singular: "podreport", Namespaced: true, Verbs: reads,
			Subresources: []Subresource{
				{"files", monopodv1.SchemeGroupVersion.WithKind("Files"), []string{"get", "update"}},
				{"history", monopodv1.SchemeGroupVersion.WithKind("History"), gets},
				{"rollback", monopodv1.SchemeGroupVersion.WithKind("Rollback"), creates},
				{"why", monopodv1.SchemeGroupVersion.WithKind("Why"), gets},
			},
		},
		{GroupVersionKind: monopodv1.SchemeGroupVersion.WithKind("Revision"), Plural: "revisions", Singular: "revision", Namespaced: true, Verbs: reads, OnDemand: true, fields: revisionFields},
		{GroupVersionKind: monopodv1.SchemeGroupVersion.WithKind("Source"), Plural: "sources", Singular: "source", Verbs: reads, OnDemand: true, fields: sourceFields},
		{GroupVersionKind: nodev1.SchemeGroupVersion.WithKind("RuntimeClass"), Plural: "runtimeclasses", Singular: "runtimeclass", Verbs: writes},
		{GroupVersionKind: schedulingv1.SchemeGroupVersion.WithKind("PriorityClass"), Plural: "priorityclasses", Singular: "priorityclass", Short: []string{"pc"}, Verbs: writes},
		{GroupVersionKind: storagev1.SchemeGroupVersion.WithKind("StorageClass"), Plural: "storageclasses", Singular: "storageclass", Short: []string{"sc"}, Verbs: writes},
	}
}

// agentSubresources returns the subresources that the monopod commands use in addition to pods.
func agentSubresources() []Subresource {
	var all []Subresource
	for _, s := range []struct {
		name, kind string
		verbs      []string
	}{
		{"applied", "Apply", []string{"delete", "update"}},
		{"config", "Configuration", gets},
		{"cordon", "Schedule", []string{"update"}},
		{"costs", "Costs", gets},
		{"documents", "List", gets},
		{"drain", "Schedule", []string{"delete", "get", "update"}},
		{"events", "EventList", gets},
		{"images", "ImageReport", []string{"delete", "get"}},
		{"kubeconfig", "Kubeconfig", creates},
		{"pulls", "Pulls", connects},
		{"sources", "Inputs", gets},
		{"why", "Why", gets},
	} {
		all = append(all, Subresource{s.name, monopodv1.SchemeGroupVersion.WithKind(s.kind), s.verbs})
	}
	return all
}

func virtual(k Kind) *Kind {
	k.Virtual, k.Verbs = true, creates
	return &k
}

func podFields(o runtime.Object) fields.Set {
	p := o.(*corev1.Pod)
	set := fields.Set{
		"spec.nodeName": p.Spec.NodeName, "spec.restartPolicy": string(p.Spec.RestartPolicy), "spec.schedulerName": p.Spec.SchedulerName,
		"spec.serviceAccountName": p.Spec.ServiceAccountName, "spec.hostNetwork": strconv.FormatBool(p.Spec.HostNetwork),
		"status.phase": string(p.Status.Phase), "status.podIP": p.Status.PodIP, "status.podIPs": p.Status.PodIP,
		"status.nominatedNodeName": p.Status.NominatedNodeName,
	}
	return set
}

func controllerFields(o runtime.Object) fields.Set {
	return fields.Set{"status.replicas": strconv.Itoa(int(o.(*corev1.ReplicationController).Status.Replicas))}
}

func nodeFields(o runtime.Object) fields.Set {
	return fields.Set{"spec.unschedulable": strconv.FormatBool(o.(*corev1.Node).Spec.Unschedulable)}
}

func revisionFields(o runtime.Object) fields.Set {
	r := o.(*monopodv1.Revision)
	return fields.Set{"pod": r.Pod, "status.outcome": r.Status.Outcome, "status.active": strconv.FormatBool(r.Status.Active)}
}

func sourceFields(o runtime.Object) fields.Set {
	s := o.(*monopodv1.Source)
	return fields.Set{"status.kind": s.Status.Kind, "status.verdict": s.Status.Verdict}
}

func namespaceFields(o runtime.Object) fields.Set {
	return fields.Set{"status.phase": string(o.(*corev1.Namespace).Status.Phase)}
}

func secretFields(o runtime.Object) fields.Set {
	return fields.Set{"type": string(o.(*corev1.Secret).Type)}
}

func serviceFields(o runtime.Object) fields.Set {
	s := o.(*corev1.Service)
	return fields.Set{"spec.clusterIP": s.Spec.ClusterIP, "spec.type": string(s.Spec.Type)}
}

func jobFields(o runtime.Object) fields.Set {
	return fields.Set{"status.successful": strconv.Itoa(int(o.(*batchv1.Job).Status.Succeeded))}
}

func eventFields(o runtime.Object) fields.Set {
	e := o.(*corev1.Event)
	source := e.Source.Component
	if source == "" {
		source = e.ReportingController
	}
	set := about("involvedObject.", e.InvolvedObject)
	set["reason"], set["type"], set["source"], set["reportingComponent"] = e.Reason, e.Type, source, e.ReportingController
	return set
}

func newEventFields(o runtime.Object) fields.Set {
	e := o.(*eventsv1.Event)
	set := about("regarding.", e.Regarding)
	set["reason"], set["type"], set["reportingController"] = e.Reason, e.Type, e.ReportingController
	return set
}

func about(prefix string, r corev1.ObjectReference) fields.Set {
	return fields.Set{
		prefix + "kind": r.Kind, prefix + "namespace": r.Namespace, prefix + "name": r.Name, prefix + "uid": string(r.UID),
		prefix + "apiVersion": r.APIVersion, prefix + "resourceVersion": r.ResourceVersion, prefix + "fieldPath": r.FieldPath,
	}
}
