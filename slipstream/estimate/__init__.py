"""What a bundle would take on a Jetson: a roofline from its graphs and the module's data sheet."""
