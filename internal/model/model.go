// Package model owns the values that packages of monopod exchange: desired pods, inputs, and the probes, image pulls, cgroups and troubles of pods.
//
// It must not act on them, nor depend on a package that does.
package model
