package manifests

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Annotations that control how a changed pod takes effect.
const (
	// AnnotationAutoRollback is "true" or "false": whether a change that fails is rolled back.
	AnnotationAutoRollback = "monopod.dev/auto-rollback"
	// AnnotationReadyDeadline is a duration: within which a changed pod must be Ready.
	AnnotationReadyDeadline = "monopod.dev/ready-deadline"
	// AnnotationSoak is a duration: for how long it must stay Ready then.
	AnnotationSoak = "monopod.dev/soak"
	// AnnotationUpdateGroup is the name of the pods of a namespace that are changed one after the other.
	AnnotationUpdateGroup = "monopod.dev/update-group"
	// AnnotationUpdateOrder is an integer: pods of a group with lower ones come first. 0 when left out.
	AnnotationUpdateOrder = "monopod.dev/update-order"
)

// Rollout is how a changed pod comes into effect. What its annotations leave open is nil or empty.
type Rollout struct {
	AutoRollback  *bool
	ReadyDeadline *time.Duration
	Soak          *time.Duration
	Group         string
	Order         int
}

// PodRollout reads the annotations of a pod. An accepted pod has none that are wrong.
func PodRollout(pod *corev1.Pod) (r Rollout, err error) {
	for _, name := range RolloutAnnotations() {
		if value, ok := pod.Annotations[name]; ok {
			if problem := r.Set(name, value); problem != nil {
				err = errors.Join(err, fmt.Errorf("annotation %s: %w", name, problem))
			}
		}
	}
	return r, err
}

// RolloutAnnotations are the annotations that PodRollout reads.
func RolloutAnnotations() []string {
	return []string{AnnotationAutoRollback, AnnotationReadyDeadline, AnnotationSoak, AnnotationUpdateGroup, AnnotationUpdateOrder}
}

// Set takes over the value of one annotation.
func (r *Rollout) Set(name, value string) error {
	switch name {
	case AnnotationAutoRollback:
		if value != "true" && value != "false" {
			return errors.New("must be true or false")
		}
		yes := value == "true"
		r.AutoRollback = &yes
	case AnnotationReadyDeadline:
		d, err := rolloutDuration(value, time.Second)
		r.ReadyDeadline = &d
		return err
	case AnnotationSoak:
		d, err := rolloutDuration(value, 0)
		r.Soak = &d
		return err
	case AnnotationUpdateGroup:
		if msgs := validation.IsDNS1123Label(value); len(msgs) > 0 {
			return errors.New(strings.Join(msgs, "; "))
		}
		r.Group = value
	case AnnotationUpdateOrder:
		n, err := strconv.ParseInt(value, 10, 32)
		if err != nil {
			return errors.New("must be an integer")
		}
		r.Order = int(n)
	}
	return nil
}

// rolloutDuration takes what a day has room for.
func rolloutDuration(value string, least time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	switch {
	case err != nil:
		return 0, errors.New("must be a duration, such as 90s or 5m")
	case d < least || d > 24*time.Hour:
		return 0, fmt.Errorf("must be between %s and 24h", least)
	}
	return d, nil
}
