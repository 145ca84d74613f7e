// Package model defines the values that the parts of monopod exchange: what is to run, where it was read from, and what is known of the
// probes, image pulls and cgroups of pods. Each of them is defined here only.
//
// It must not act on them, nor depend on any package that does. It has no goroutines.
package model
