"""The toolset `admin`: what a person does with memories in a shell. No session has it unless it is asked for."""
