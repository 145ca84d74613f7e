package validate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod/manifests/validate/check"
)

// schedulingChecker checks affinities, tolerations and spread constraints.
type schedulingChecker struct{ *check.Checker }

func schedulingOf(c *check.Checker) schedulingChecker { return schedulingChecker{c} }

// scheduling checks what chooses a node: without effect here, but a mistake in it is a mistake all the same.
func (c schedulingChecker) scheduling(path *field.Path) {
	spec := &c.Pod.Spec
	c.Add(metavalidation.ValidateLabels(spec.NodeSelector, path.Child("nodeSelector"))...)
	if spec.NodeName != "" {
		c.Invalid(path.Child("nodeName"), spec.NodeName, apivalidation.NameIsDNSSubdomain(spec.NodeName, false)...)
	}
	if spec.PriorityClassName != "" {
		c.Subdomain(path.Child("priorityClassName"), spec.PriorityClassName)
	}
	if spec.PreemptionPolicy != nil {
		check.RequiredOneOf(c.Checker, path.Child("preemptionPolicy"), *spec.PreemptionPolicy, corev1.PreemptLowerPriority, corev1.PreemptNever)
	}
	if spec.Affinity != nil {
		c.affinity(path.Child("affinity"), spec.Affinity)
	}
	for i := range spec.Tolerations {
		c.toleration(path.Child("tolerations").Index(i), &spec.Tolerations[i])
	}
	c.spread(path.Child("topologySpreadConstraints"))
	c.schedulingGates(path)
	if group := spec.SchedulingGroup; group != nil {
		at := path.Child("schedulingGroup", "podGroupName")
		if group.PodGroupName == nil {
			c.Add(field.Invalid(at, group.PodGroupName, "must specify one of: `podGroupName`"))
		} else {
			c.Subdomain(at, *group.PodGroupName)
		}
	}
}

func (c schedulingChecker) schedulingGates(path *field.Path) {
	seen := map[string]bool{}
	for i, gate := range c.Pod.Spec.SchedulingGates {
		at := path.Child("schedulingGates").Index(i)
		c.QualifiedName(at, gate.Name)
		if seen[gate.Name] {
			c.Add(field.Duplicate(at, gate.Name))
		}
		seen[gate.Name] = true
	}
	if len(seen) > 0 && c.Pod.Spec.NodeName != "" {
		c.Forbidden(path.Child("nodeName"), "cannot be set until all schedulingGates have been cleared")
	}
}

func (c schedulingChecker) toleration(path *field.Path, t *corev1.Toleration) {
	if t.Key != "" {
		c.Add(metavalidation.ValidateLabelName(t.Key, path.Child("key"))...)
	}
	if t.Key == "" && t.Operator != corev1.TolerationOpExists {
		c.Add(field.Invalid(path.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
		c.Add(field.Invalid(path.Child("effect"), t.Effect, "effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	switch t.Operator {
	case corev1.TolerationOpEqual, "":
		if msgs := validation.IsValidLabelValue(t.Value); len(msgs) > 0 {
			c.Invalid(path.Child("operator"), t.Value, strings.Join(msgs, ";"))
		}
	case corev1.TolerationOpExists:
		if t.Value != "" {
			c.Invalid(path.Child("operator"), t.Value, "value must be empty when `operator` is 'Exists'")
		}
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		// Known, but behind a gate that is off.
		c.Add(field.NotSupported(path.Child("operator"), t.Operator, []corev1.TolerationOperator{
			corev1.TolerationOpEqual, corev1.TolerationOpExists, corev1.TolerationOpLt, corev1.TolerationOpGt,
		}))
	default:
		check.OneOf(c.Checker, path.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)
	}
	if t.Effect != "" {
		check.OneOf(c.Checker, path.Child("effect"), t.Effect,
			corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)
	}
}

const (
	requiredTerms  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferredTerms = "preferredDuringSchedulingIgnoredDuringExecution"
)

func (c schedulingChecker) affinity(path *field.Path, a *corev1.Affinity) {
	if a.NodeAffinity != nil {
		c.nodeAffinity(path.Child("nodeAffinity"), a.NodeAffinity)
	}
	if p := a.PodAffinity; p != nil {
		c.podAffinity(path.Child("podAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := a.PodAntiAffinity; p != nil {
		c.podAffinity(path.Child("podAntiAffinity"), p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

func (c schedulingChecker) nodeAffinity(path *field.Path, a *corev1.NodeAffinity) {
	if required := a.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := path.Child(requiredTerms, "nodeSelectorTerms")
		if len(required.NodeSelectorTerms) == 0 {
			c.Required(terms, "must have at least one node selector term")
		}
		for i, term := range required.NodeSelectorTerms {
			c.nodeTerm(terms.Index(i), term)
			for j, requirement := range term.MatchExpressions {
				values := terms.Index(i).Child("matchExpressions").Index(j).Child("values")
				for k, value := range requirement.Values {
					c.Invalid(values.Index(k), value, validation.IsValidLabelValue(value)...)
				}
			}
		}
	}
	for i, term := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		at := path.Child(preferredTerms).Index(i)
		c.weight(at.Child("weight"), term.Weight)
		c.nodeTerm(at.Child("preference"), term.Preference)
	}
}

func (c schedulingChecker) weight(path *field.Path, weight int32) {
	if weight <= 0 || weight > 100 {
		c.Invalid(path, weight, "must be in the range 1-100")
	}
}

func (c schedulingChecker) nodeTerm(path *field.Path, term corev1.NodeSelectorTerm) {
	for i, requirement := range term.MatchExpressions {
		c.nodeRequirement(path.Child("matchExpressions").Index(i), requirement)
	}
	for i, requirement := range term.MatchFields {
		c.nodeField(path.Child("matchFields").Index(i), requirement)
	}
}

func (c schedulingChecker) nodeRequirement(path *field.Path, r corev1.NodeSelectorRequirement) {
	values := path.Child("values")
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			c.Required(values, "must be specified when `operator` is 'In' or 'NotIn'")
		}
	case corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			c.Forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
		}
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			c.Required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'")
		}
	default:
		c.Add(field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	c.Add(metavalidation.ValidateLabelName(r.Key, path.Child("key"))...)
}

func (c schedulingChecker) nodeField(path *field.Path, r corev1.NodeSelectorRequirement) {
	switch r.Operator {
	case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			c.Required(path.Child("values"), "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
		}
	default:
		c.Add(field.Invalid(path.Child("operator"), r.Operator, "not a valid selector operator"))
	}
	if r.Key != metav1.ObjectNameField {
		c.Invalid(path.Child("key"), r.Key, "not a valid field selector key")
		return
	}
	for i, value := range r.Values {
		c.Subdomain(path.Child("values").Index(i), value)
	}
}

func (c schedulingChecker) podAffinity(path *field.Path, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
	for i := range required {
		c.podTerm(path.Child(requiredTerms).Index(i), &required[i])
	}
	for i := range preferred {
		at := path.Child(preferredTerms).Index(i)
		c.weight(at.Child("weight"), preferred[i].Weight)
		c.podTerm(at.Child("podAffinityTerm"), &preferred[i].PodAffinityTerm)
	}
}

func (c schedulingChecker) podTerm(path *field.Path, term *corev1.PodAffinityTerm) {
	c.selector(path.Child("labelSelector"), term.LabelSelector)
	c.selector(path.Child("namespaceSelector"), term.NamespaceSelector)
	for _, name := range term.Namespaces {
		c.Invalid(path.Child("namespace"), name, apivalidation.ValidateNamespaceName(name, false)...)
	}
	c.labelKeys(path.Child("matchLabelKeys"), term.MatchLabelKeys, term.LabelSelector)
	c.labelKeys(path.Child("mismatchLabelKeys"), term.MismatchLabelKeys, term.LabelSelector)
	c.selectedTwice(path, term.MatchLabelKeys, term.LabelSelector)
	for i, key := range term.MatchLabelKeys {
		if slices.Contains(term.MismatchLabelKeys, key) {
			c.Invalid(path.Child("matchLabelKeys").Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys")
		}
	}
	if term.TopologyKey == "" {
		c.Required(path.Child("topologyKey"), "can not be empty")
	}
	c.Add(metavalidation.ValidateLabelName(term.TopologyKey, path.Child("topologyKey"))...)
}

func (c schedulingChecker) selector(path *field.Path, selector *metav1.LabelSelector) {
	c.Add(metavalidation.ValidateLabelSelector(selector, metavalidation.LabelSelectorValidationOptions{}, path)...)
}

func (c schedulingChecker) labelKeys(path *field.Path, keys []string, selector *metav1.LabelSelector) {
	if len(keys) > 0 && selector == nil {
		c.Forbidden(path, "must not be specified when labelSelector is not set")
		return
	}
	for i, key := range keys {
		c.Add(metavalidation.ValidateLabelName(key, path.Index(i))...)
	}
}

// selectedTwice finds keys that a selector matches on already. The API server adds an expression for each key, so an existing one becomes a
// duplicate.
func (c schedulingChecker) selectedTwice(path *field.Path, keys []string, selector *metav1.LabelSelector) {
	if selector == nil {
		return
	}
	selected := map[string]bool{}
	for key := range selector.MatchLabels {
		selected[key] = true
	}
	for _, expression := range selector.MatchExpressions {
		if i := slices.Index(keys, expression.Key); i >= 0 && selected[expression.Key] {
			c.Invalid(path.Index(i), expression.Key, "exists in both matchLabelKeys and labelSelector")
		}
		selected[expression.Key] = true
	}
}

func (c schedulingChecker) spread(path *field.Path) {
	all := c.Pod.Spec.TopologySpreadConstraints
	for i := range all {
		t, at := &all[i], path.Index(i)
		if t.MaxSkew <= 0 {
			c.Invalid(at.Child("maxSkew"), t.MaxSkew, "must be greater than zero")
		}
		if t.TopologyKey == "" {
			c.Required(at.Child("topologyKey"), "can not be empty")
		}
		check.OneOf(c.Checker, at.Child("whenUnsatisfiable"), t.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)
		same := func(o corev1.TopologySpreadConstraint) bool {
			return o.TopologyKey == t.TopologyKey && o.WhenUnsatisfiable == t.WhenUnsatisfiable
		}
		if slices.ContainsFunc(all[i+1:], same) {
			c.Add(field.Duplicate(at.Child("{topologyKey, whenUnsatisfiable}"), fmt.Sprintf("{%v, %v}", t.TopologyKey, t.WhenUnsatisfiable)))
		}
		c.minDomains(at.Child("minDomains"), t)
		for _, p := range []struct {
			name   string
			policy *corev1.NodeInclusionPolicy
		}{{"nodeAffinityPolicy", t.NodeAffinityPolicy}, {"nodeTaintsPolicy", t.NodeTaintsPolicy}} {
			if p.policy != nil {
				check.OneOf(c.Checker, at.Child(p.name), *p.policy, corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore)
			}
		}
		c.labelKeys(at.Child("matchLabelKeys"), t.MatchLabelKeys, t.LabelSelector)
		c.selectedTwice(at, t.MatchLabelKeys, t.LabelSelector)
		c.selector(at.Child("labelSelector"), t.LabelSelector)
	}
}

func (c schedulingChecker) minDomains(path *field.Path, t *corev1.TopologySpreadConstraint) {
	if t.MinDomains == nil {
		return
	}
	if *t.MinDomains <= 0 {
		c.Invalid(path, *t.MinDomains, "must be greater than zero")
	}
	if t.WhenUnsatisfiable != corev1.DoNotSchedule {
		c.Invalid(path, *t.MinDomains, fmt.Sprintf("can only use minDomains if whenUnsatisfiable=%s, not %s", corev1.DoNotSchedule, t.WhenUnsatisfiable))
	}
}
