// Command notices writes the licences of all that is linked into the programs we
// ship, and a bill of materials (CycloneDX). It asks the built programs, so that
// nothing can be forgotten.
//
//	notices -version V -notices FILE -sbom FILE PROGRAM…
//
// It runs in the module's root, for go list says where each module lies.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	version := flag.String("version", "", "of the packages")
	noticesFile := flag.String("notices", "THIRD-PARTY-NOTICES", "file to write")
	sbomFile := flag.String("sbom", "trimtab.cdx.json", "file to write")
	flag.Parse()
	programs, err := readPrograms(flag.Args())
	if err != nil {
		return err
	}
	modules, err := linked(ctx, ".", programs)
	if err != nil {
		return err
	}
	text, err := notices(append(slices.Clip(modules), module{path: libbpf, version: "1.1.2", dir: "bpf"}))
	if err != nil {
		return err
	}
	bom, err := sbom(*version, os.Getenv("SOURCE_DATE_EPOCH"), programs, modules)
	if err != nil {
		return err
	}
	if err := os.WriteFile(*noticesFile, text, 0o644); err != nil {
		return err
	}
	return os.WriteFile(*sbomFile, bom, 0o644)
}
