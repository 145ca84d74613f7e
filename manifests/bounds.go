package manifests

import (
	"fmt"
	"math"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of one pod and of one workload, beyond what runs on one machine: a field of a few bytes must not stand for
// gigabytes of memory. docs/operating.md lists them.
const (
	maxContainers = 100
	maxVolumes    = 500
	// maxMounts is per container, volumeMounts and volumeDevices each.
	maxMounts = 500
	// maxPorts is per container.
	maxPorts = 2_000
	// maxProjections is the number of sources of a projected volume.
	maxProjections = 500
	// MaxVolumeFiles is how many files a volume of ConfigMaps, Secrets or fields of the pod may hold, MaxVolumeBytes how large
	// they may be together.
	MaxVolumeFiles = 10_000
	MaxVolumeBytes = 32 << 20
	// maxHostsFile is the size of what hostAliases add to /etc/hosts.
	maxHostsFile  = 1 << 20
	maxDNSOptions = 100
	maxReplicas   = 1_000
	// maxCompletions is that of a Job, whose pods do not run all at once; a CronJob remembers those of each of its runs.
	maxCompletions     = 10_000
	maxCronCompletions = 1_000
	maxHistory         = 500
	// maxMadePods is how many pods the documents of one input may be and make together, maxMadeBytes how large the templates of
	// workloads may be as JSON, times their replicas.
	maxMadePods  = 2_000
	maxMadeBytes = 32 << 20
)

// tooMany reports a list that is longer than most.
func (c *checker) tooMany(path *field.Path, n, most int) {
	if n > most {
		c.add(field.TooMany(path, n, most))
	}
}

// bounds reports what there is too much of in a pod. Other checks compare each with each: they come after it.
func (c *checker) bounds(spec *field.Path) {
	pod := &c.pod.Spec
	c.tooMany(spec.Child("containers"), len(pod.Containers), maxContainers)
	c.tooMany(spec.Child("initContainers"), len(pod.InitContainers), maxContainers)
	c.tooMany(spec.Child("ephemeralContainers"), len(pod.EphemeralContainers), maxContainers)
	c.tooMany(spec.Child("volumes"), len(pod.Volumes), maxVolumes)
	for _, p := range c.allContainers(spec) {
		c.tooMany(p.path.Child("volumeMounts"), len(p.VolumeMounts), maxMounts)
		c.tooMany(p.path.Child("volumeDevices"), len(p.VolumeDevices), maxMounts)
		c.tooMany(p.path.Child("ports"), len(p.Ports), maxPorts)
	}
	for i := range pod.Volumes {
		if v := pod.Volumes[i].Projected; v != nil {
			c.tooMany(spec.Child("volumes").Index(i).Child("projected", "sources"), len(v.Sources), maxProjections)
		}
	}
	if pod.DNSConfig != nil {
		c.tooMany(spec.Child("dnsConfig", "options"), len(pod.DNSConfig.Options), maxDNSOptions)
	}
	size := 0
	for i := range pod.HostAliases {
		size += len(pod.HostAliases[i].IP) + 1
		for _, name := range pod.HostAliases[i].Hostnames {
			size += len(name) + 1
		}
	}
	if size > maxHostsFile {
		c.add(tooLong(spec.Child("hostAliases"), fmt.Sprintf("they may add %d bytes to /etc/hosts at most", maxHostsFile)))
	}
}

// tooLong reports a value that is not shown, because it is large.
func tooLong(path *field.Path, detail string) *field.Error {
	return &field.Error{Type: field.ErrorTypeTooLong, Field: path.String(), BadValue: "", Detail: detail}
}

// Copies is how many pods a workload makes at once, at most.
func Copies(obj metav1.Object) int { return copies(obj) }

// copies is how many pods a workload makes at once, at most.
func copies(obj metav1.Object) int {
	n := func(p *int32) int {
		if p == nil {
			return 1
		}
		return int(max(*p, 0))
	}
	job := func(s *batchv1.JobSpec) int {
		if s.Completions == nil {
			return n(s.Parallelism)
		}
		return min(n(s.Parallelism), n(s.Completions))
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		return n(o.Spec.Replicas)
	case *appsv1.ReplicaSet:
		return n(o.Spec.Replicas)
	case *appsv1.StatefulSet:
		return n(o.Spec.Replicas)
	case *batchv1.Job:
		return job(&o.Spec)
	case *batchv1.CronJob:
		return job(&o.Spec.JobTemplate.Spec)
	}
	return 1
}

// counts checks how many pods a workload makes.
func (c *checker) counts(obj metav1.Object) {
	spec := field.NewPath("spec")
	most := func(path *field.Path, n *int32, most int) {
		if n != nil && int(*n) > most {
			c.invalid(path, *n, fmt.Sprintf("must be less than or equal to %d", most))
		}
	}
	switch o := obj.(type) {
	case *appsv1.Deployment:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
	case *appsv1.ReplicaSet:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
	case *appsv1.StatefulSet:
		most(spec.Child("replicas"), o.Spec.Replicas, maxReplicas)
		if o.Spec.Ordinals != nil && int(o.Spec.Ordinals.Start) > math.MaxInt32-maxReplicas {
			c.invalid(spec.Child("ordinals", "start"), o.Spec.Ordinals.Start, fmt.Sprintf("must be less than or equal to %d", math.MaxInt32-maxReplicas))
		}
	case *batchv1.Job:
		most(spec.Child("completions"), o.Spec.Completions, maxCompletions)
		most(spec.Child("parallelism"), o.Spec.Parallelism, maxReplicas)
	case *batchv1.CronJob:
		job := spec.Child("jobTemplate", "spec")
		most(job.Child("completions"), o.Spec.JobTemplate.Spec.Completions, maxCronCompletions)
		most(job.Child("parallelism"), o.Spec.JobTemplate.Spec.Parallelism, maxReplicas)
		most(spec.Child("successfulJobsHistoryLimit"), o.Spec.SuccessfulJobsHistoryLimit, maxHistory)
		most(spec.Child("failedJobsHistoryLimit"), o.Spec.FailedJobsHistoryLimit, maxHistory)
	}
}

// amount is how much the pods of one input are.
type amount struct{ pods, bytes int }

// add takes more pods in, with a template of a size each, and says what there is too much of: nothing if that is empty.
func (a *amount) add(pods, size int) string {
	switch a.pods, a.bytes = a.pods+pods, a.bytes+pods*size; {
	case a.pods > maxMadePods:
		return fmt.Sprintf("the pods of one input, those that its workloads make included, may be %d at most", maxMadePods)
	case a.bytes > maxMadeBytes:
		return fmt.Sprintf("the templates of the workloads of one input, times their replicas, may have %d MiB at most", maxMadeBytes>>20)
	}
	return ""
}

// countField is the field of a workload that says how many pods there are at once.
func countField(obj metav1.Object) string {
	switch obj.(type) {
	case *batchv1.Job:
		return "spec.parallelism"
	case *batchv1.CronJob:
		return "spec.jobTemplate.spec.parallelism"
	case *appsv1.DaemonSet:
		return "spec.template"
	}
	return "spec.replicas"
}
