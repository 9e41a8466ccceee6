# Give deploy jobs the nodes that can be deployed
if any(re.match(r"deploy(=|$)", each) for each in types):
    add_property("deploy = 'YES'")
