package decode

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Limits of what the documents of one input make.
const (
	// maxMadePods is how many pods they may be and make together.
	maxMadePods = 2_000
	// maxMadeBytes is how large the templates of workloads may be as JSON, times their replicas.
	maxMadeBytes = 32 << 20
)

// amount is how much the pods of one input are.
type amount struct{ pods, bytes int }

// add counts more pods, with a template of a size each. Returns which limit is exceeded, or an empty string.
func (a *amount) add(pods, size int) string {
	switch a.pods, a.bytes = a.pods+pods, a.bytes+pods*size; {
	case a.pods > maxMadePods:
		return fmt.Sprintf("one input may define at most %d pods, including those of its workloads", maxMadePods)
	case a.bytes > maxMadeBytes:
		return fmt.Sprintf("the templates of the workloads of one input, multiplied by their replicas, may have at most %d MiB", maxMadeBytes>>20)
	}
	return ""
}

// countField is the field of a workload that sets its number of concurrent pods.
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
